import { existsSync } from "node:fs";
import { runJavascript, runPython, runShell } from "./code-tools.ts";

export { runJavascript, runPython, runShell } from "./code-tools.ts";

/** What a deployer turns on by naming this package in RUNNER_TOOLS; Python where the host has one. */
export default [runJavascript, ...(existsSync("/usr/bin/python3") ? [runPython] : []), runShell];
