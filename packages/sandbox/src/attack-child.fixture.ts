import { runNaively, type NaiveProgram } from "./attack-naive.fixture.ts";
import { serveCalls } from "./child-host.ts";

// The child of the level `process`: it runs what it gets, as a trusted handler would.
serveCalls(async (body, { emit }) => {
  return await runNaively(body as NaiveProgram, () => emit(null)); // sent by the attacked runner
});
