import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { env, getuid } from "node:process";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  attackColumn,
  attackColumns,
  controlColumns,
  matrixOf,
  type AttackColumn,
  type ColumnOutcome,
} from "./attack.suite.ts";

// `npm run test:all` plays the whole matrix, as `npm run attack` does. `npm test` makes twelve attacks, of every kind, on
// one tier.
const isWhole = env["LARKLINE_LONG_TESTS"] === "1";
const dozen = ["S1", "S2", "S6", "N1", "N3", "W1", "W2", "P1", "P2", "H1", "X3", "U1"];
const oneTier = getuid?.() === 0 ? "bwrap" : "bwrap-user";

const chosen = attackColumns()
  .filter(({ name }) => isWhole || name === oneTier)
  .map((column) => (isWhole ? column : { ...column, order: { ...column.order, only: dozen } }));
/** Without isolation the attacks must get out, or they prove nothing. */
const control = controlColumns().filter(({ name }) => isWhole && name === "inline");
const quickControls = [
  "S1",
  "S2",
  "S3",
  "S4",
  "S6",
  "S7",
  "N1",
  "N3",
  "N4",
  "N5",
  "W1",
  "W2",
  "P1",
  "P2",
  "P3",
  "P5",
  "P7",
  "P8",
  "H1",
  "H2",
  "H3",
  "X3",
  "X4",
  "X5",
  "X6",
  "U1",
  "U3",
  "U4",
  "U5",
  "U6",
  "U7",
  "U8",
];
// An ordinary user's processes are counted together: columns would take each other's.
const columnsAtOnce = getuid?.() === 0 ? 2 : 1;

const stop = new AbortController();
const outcomes = new Map<string, Promise<ColumnOutcome>>();

function attackAll(columns: readonly AttackColumn[]): void {
  let free = Promise.resolve<unknown>(undefined);
  const lanes = Array.from({ length: columnsAtOnce }, () => free);
  for (const [index, column] of columns.entries()) {
    free = lanes[index % columnsAtOnce] ?? free;
    const outcome = free.then(() => attackColumn(column, stop.signal));
    lanes[index % columnsAtOnce] = outcome;
    outcomes.set(column.name, outcome);
  }
}

function succeeds(command: string, args: readonly string[], uid: number | undefined): boolean {
  return (
    spawnSync(command, args, { stdio: "ignore", ...(uid === undefined ? {} : { uid, gid: uid }) })
      .status === 0
  );
}

/** Whether this machine has what a tier needs, found out without the code under test where that is possible. */
function canBeHere({ order }: AttackColumn, finding: string): boolean {
  // Whether the kernel was booted with Landlock shows in its answer only.
  if (order.place.tier === "sbx") {
    return existsSync("/usr/bin/gcc") && !/Landlock \d+, where/.test(finding);
  }
  return succeeds("bwrap", ["--unshare-all", "--ro-bind", "/", "/", "/bin/true"], order.uid);
}

beforeAll(() => {
  const controls = control.map((column) => ({
    ...column,
    order: { ...column.order, only: quickControls },
  }));
  attackAll([...chosen, ...controls]);
});
afterAll(async () => {
  stop.abort();
  console.log(matrixOf(await Promise.all(outcomes.values())));
});

const minuteMs = 60_000;

describe.each(chosen.map((column) => ({ column, name: column.name })))(
  "as $name",
  ({ column, name }) => {
    it("every attack that it meets is held", { timeout: 5 * minuteMs }, async (context) => {
      const outcome = await outcomes.get(name);
      if (outcome === undefined || "unavailable" in outcome) {
        expect(
          outcome?.isLimitOfTests === true || !canBeHere(column, outcome?.unavailable ?? ""),
          outcome?.unavailable ?? "not run",
        ).toBe(true);
        return context.skip(outcome?.unavailable);
      }
      expect(
        outcome.verdicts.filter(({ verdict, expected }) => verdict !== "held" || !expected),
      ).toEqual([]);
      expect(outcome.verdicts).toHaveLength(column.order.only?.length ?? 66);
    });
  },
);

describe.each(control.map(({ name }) => name))("as %s, which confines no program", (name) => {
  it("at least 20 attacks get out: they are real", { timeout: 5 * minuteMs }, async () => {
    const outcome = await outcomes.get(name);
    const verdicts = outcome !== undefined && "verdicts" in outcome ? outcome.verdicts : [];
    expect(verdicts.filter(({ verdict }) => verdict === "out").length).toBeGreaterThanOrEqual(20);
  });
});
