import { env } from "node:process";

/** Whether tests run in their long form, as in `npm run test:all`; `npm test` proves each fact once, and cheaply. */
export const isLongRun = env["LARKLINE_LONG_TESTS"] === "1";
