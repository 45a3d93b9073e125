import { runRunner } from "@larkline/runner";
import { toolProgram } from "./app.ts";

await runRunner(toolProgram);
