import { expect, it } from "vitest";
import { runLeaks } from "./leaks.ts";
import { runPeople } from "./people.ts";
import { runWrites } from "./writes.ts";

it(
  "every call runs as the person who asks, though processes die, grants are taken back and tokens end",
  { timeout: 300_000 },
  async () => {
    const report = await runPeople({
      seed: 5,
      people: 10,
      workers: 2,
      runners: 2,
      durationMs: 40_000,
      killPauseMs: 5_000,
      endPauseMs: 1_000,
      patienceMs: 90_000,
    });
    console.dir(report);
    expect(report).toMatchObject({
      answered: report.asked,
      wrong: 0,
      foreign: 0,
      callsAsBot: 0,
      consentsAgain: 0,
      doubled: 0,
    });
    expect(report.consents).toBeGreaterThan(10);
    expect(report.revoked).toBeGreaterThan(0);
    expect(report.expired).toBeGreaterThan(0);
    expect(report.refreshes).toBeGreaterThan(report.consents);
    expect(Object.values(report.kills).reduce((sum, count) => sum + count, 0)).toBeGreaterThan(1);
  },
);

it(
  "a write with a key takes effect once and no person is asked what became of it; others are never doubled",
  { timeout: 300_000 },
  async () => {
    const report = await runWrites({
      seed: 3,
      writes: 60,
      people: 6,
      workers: 2,
      runners: 2,
      killPauseMs: 4_000,
      loseOneOf: 6,
      patienceMs: 120_000,
    });
    console.dir(report);
    const { withKey, looking, asking, lostAnswers, kills } = report;
    const { asked } = withKey;
    expect(withKey).toEqual({
      asked,
      answered: asked,
      made: asked,
      doubled: 0,
      lost: 0,
      questions: 0,
    });
    for (const others of [looking, asking]) {
      expect(others).toMatchObject({ answered: others.asked, doubled: 0, lost: 0 });
      expect(others.asked).toBeGreaterThan(5);
    }
    expect(lostAnswers).toBeGreaterThan(10);
    expect(kills["tool-runner"]).toBeGreaterThan(0);
  },
);

it(
  "a person gets nothing of what only another one may read, in whatever way the model is brought to ask",
  { timeout: 300_000 },
  async () => {
    const report = await runLeaks({ rounds: 1, atOnce: 6, patienceMs: 120_000 });
    console.dir(report);
    const none = { leaked: 0, asAnn: 0, changed: 0, unanswered: [], found: [] };
    expect(report).toMatchObject({ attempts: 160, calls: 160, ...none });
    expect(report.exports).toBeGreaterThan(60);
  },
);
