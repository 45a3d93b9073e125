import { barChart } from "./bar-chart.ts";
import { calculator } from "./calculator.ts";
import { currentTime } from "./current-time.ts";
import { createFetchPageTool } from "./fetch-page.ts";

export { calculator } from "./calculator.ts";
export { currentTime } from "./current-time.ts";
export { createFetchPageTool, type FetchPageOptions } from "./fetch-page.ts";

/** The modules that a runner loads by default. No tool of them changes anything or keeps a file. */
export default [currentTime, calculator, createFetchPageTool(), barChart];
