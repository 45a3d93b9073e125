export {
  AnnouncementRefusedError,
  startRunner,
  type RunnerSettings,
  type RunnerSetup,
  type ToolRunner,
} from "./runner.ts";
export { IsolationRefusedError, openLevels, type Levels, type LevelsOptions } from "./levels.ts";
export { runRunner, startRunnerApp, type RunnerApp, type RunnerProgram } from "./run-runner.ts";
export { loadRunnerConfig, type RunnerConfig, type RunnerDefaults } from "./runner-config.ts";
export { loadTools, toolsFrom, type LentPackages, type LoadedTools } from "./tool-modules.ts";
