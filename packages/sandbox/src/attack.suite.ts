import { spawn } from "node:child_process";
import { getuid } from "node:process";
import { createInterface } from "node:readline";
import { attackCases } from "./attack-cases.fixture.ts";
import { judgeCommand } from "./attack-judge-command.fixture.ts";
import type { AttackVerdict, JudgeOrder } from "./attack-judge.fixture.ts";

export type { AttackVerdict } from "./attack-judge.fixture.ts";

/** A column of the matrix: a level or tier, and who the runner is. */
export interface AttackColumn {
  name: string;
  order: JudgeOrder;
}

/** What became of a column. `isLimitOfTests`: the tests, not the tier, cannot be here. */
export type ColumnOutcome =
  | { name: string; verdicts: AttackVerdict[] }
  | { name: string; unavailable: string; isLimitOfTests: boolean };

/** A user id that no account has: no other process of the machine counts against its limits. */
const ordinaryUid = 48_111;
const asRoot = getuid?.() === 0;

function column(
  name: string,
  place: Partial<JudgeOrder["place"]>,
  rest: Partial<JudgeOrder> = {},
): AttackColumn {
  return {
    name,
    order: { place: { level: "sandbox", warm: 0, slots: 4, ...place }, concurrency: 4, ...rest },
  };
}

/** Every column that this user can fill: as root, all tiers as root and as an ordinary user. */
export function attackColumns(): AttackColumn[] {
  const own = [
    column("bwrap", { tier: "bwrap" }),
    column("sbx", { tier: "sbx" }),
    column("warm", { tier: "bwrap", warm: 2 }),
  ];
  const dropped = [
    column("bwrap-user", { tier: "bwrap" }, { uid: ordinaryUid }),
    column("sbx-user", { tier: "sbx" }, { uid: ordinaryUid + 1 }),
  ];
  if (asRoot) return [...own, ...dropped];
  return own.map((one) => ({ ...one, name: `${one.name}-user` }));
}

/** The levels that keep no attacker in: the attacks must get out of them. */
export function controlColumns(): AttackColumn[] {
  return [column("inline", { level: "inline" }), column("process", { level: "process", slots: 1 })];
}

/** Runs the attacks against one column, in processes of its own. Ends early when the signal says so. */
export async function attackColumn(
  { name, order }: AttackColumn,
  signal: AbortSignal,
): Promise<ColumnOutcome> {
  const judging = judgeCommand(order);
  if ("unavailable" in judging) return { name, ...judging, isLimitOfTests: true };
  const [command = "", ...args] = judging.command;
  const judge = spawn(command, args, { stdio: ["ignore", "pipe", "inherit"], signal });
  const verdicts: AttackVerdict[] = [];
  let unavailable = "the judge ended early";
  const lines = createInterface({ input: judge.stdout });
  lines.on("line", (line) => {
    const said = JSON.parse(line) as AttackVerdict | { unavailable: string }; // written by the judge
    if ("unavailable" in said) ({ unavailable } = said);
    else verdicts.push(said);
  });
  await new Promise<void>((resolve) =>
    judge.on("error", () => resolve()).on("close", () => resolve()),
  );
  judging.cleanUp();
  const wanted = order.only?.length ?? attackCases.length;
  return verdicts.length === wanted
    ? { name, verdicts }
    : { name, unavailable, isLimitOfTests: false };
}

function cellOf(outcome: ColumnOutcome, id: string): string {
  const verdict = "verdicts" in outcome ? outcome.verdicts.find((one) => one.id === id) : undefined;
  if (verdict === undefined) return "";
  // How a program should end is said for places that hold it only.
  const isControl = controlColumns().some(({ name }) => name === outcome.name);
  const held = verdict.expected || isControl ? "held" : "held, but ended otherwise";
  return { held, out: "**out**", "not run": "–" }[verdict.verdict];
}

/** The conformance table in Markdown. */
export function matrixOf(outcomes: readonly ColumnOutcome[]): string {
  const filled = outcomes.filter((outcome) => "verdicts" in outcome);
  const row = (cells: readonly string[]): string => `| ${cells.join(" | ")} |`;
  const totals = filled.map(({ verdicts }) => {
    const run = verdicts.filter(({ verdict }) => verdict !== "not run");
    return `**${run.filter(({ verdict }) => verdict === "held").length}/${run.length}**`;
  });
  return [
    row(["", "attack", ...filled.map(({ name }) => name)]),
    row(["---", "---", ...filled.map(() => "---")]),
    ...attackCases.map(({ id, threat, title }) =>
      row([id, `${threat}: ${title}`, ...filled.map((outcome) => cellOf(outcome, id))]),
    ),
    row(["", "**held of those run**", ...totals]),
  ].join("\n");
}
