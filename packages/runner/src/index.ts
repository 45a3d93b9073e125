export { AnnouncementRefusedError } from "./announcement.ts";
export { startRunner, type RunnerSettings, type RunnerSetup, type ToolRunner } from "./runner.ts";
export { loadTools } from "./tool-modules.ts";
