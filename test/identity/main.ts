import { parseArgs } from "node:util";
import { runLeaks } from "./leaks.ts";
import { runPeople } from "./people.ts";
import { runWrites } from "./writes.ts";

// `npm run identity -- [--part <name>]`: what acts as people, in real processes, counted.

const { values } = parseArgs({
  options: {
    seed: { type: "string", default: String(Date.now() % 100_000) },
    part: { type: "string", default: "people" },
    people: { type: "string", default: "200" },
    workers: { type: "string", default: "5" },
    runners: { type: "string", default: "2" },
    /** How long people write. */
    seconds: { type: "string", default: "300" },
    /** Of `writes`. */
    writes: { type: "string", default: "2000" },
    /** Of `leaks`: each of 160 attempts so often. */
    rounds: { type: "string", default: "4" },
  },
});

/** Prints what was counted; resolves to how much of it must never happen. */
const parts: Readonly<Record<string, () => Promise<number>>> = {
  people: async () => {
    const report = await runPeople({
      seed: Number(values.seed),
      people: Number(values.people),
      workers: Number(values.workers),
      runners: Number(values.runners),
      durationMs: Number(values.seconds) * 1_000,
      killPauseMs: 6_000,
      endPauseMs: 1_000,
      patienceMs: 180_000,
    });
    console.log(report);
    const { asked, answered, wrong, foreign, callsAsBot, consentsAgain, doubled } = report;
    return asked - answered + wrong + foreign + callsAsBot + consentsAgain + doubled;
  },
  writes: async () => {
    const report = await runWrites({
      seed: Number(values.seed),
      writes: Number(values.writes),
      people: Math.min(Number(values.people), 20),
      workers: Number(values.workers),
      runners: Number(values.runners),
      killPauseMs: 4_000,
      loseOneOf: 6,
      patienceMs: 240_000,
    });
    console.log(report);
    const { withKey, looking, asking } = report;
    const wrong = [withKey, looking, asking].map(
      ({ asked, answered, doubled, lost }) => asked - answered + doubled + lost,
    );
    return wrong.reduce((sum, one) => sum + one, withKey.asked - withKey.made + withKey.questions);
  },
  leaks: async () => {
    const report = await runLeaks({
      rounds: Number(values.rounds),
      atOnce: 12,
      patienceMs: 180_000,
    });
    console.log(report);
    return report.leaked + report.asAnn + report.changed + report.unanswered.length;
  },
};

const run = parts[values.part];
if (run === undefined) throw new Error(`--part takes ${Object.keys(parts).join(", ")}`);
console.log(`seed ${values.seed}`);
process.exit((await run()) === 0 ? 0 : 1);
