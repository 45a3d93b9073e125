// What workers and runners have for each other: which tools there are, calls that are handed off, large results.
export {
  keepResult,
  putResult,
  removeResult,
  resultHandlesIn,
  resultPage,
} from "./stored-result.ts";
export {
  RunnerDirectory,
  type AvailableTool,
  type AwayRunner,
  type LivingRunner,
  type RunnerInstance,
  type ToolClash,
  runnerScripts,
} from "./runner-directory.ts";
export { RunnerLocks } from "./runner-locks.ts";
export {
  RunnerHandoff,
  HandoffImport,
  type CallIdentities,
  type IdentityOfCall,
  type RefusedHandoff,
} from "./handoff.ts";
