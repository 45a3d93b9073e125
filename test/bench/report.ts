import type { ApprovalNumbers } from "./approvals.ts";
import type { BurstNumbers } from "./burst.ts";
import type { ScaleNumbers } from "./workers.ts";
import type { SoakSample } from "./soak.ts";
import type { WaitingNumbers } from "./waiting.ts";
import type { LevelNumbers } from "./levels.ts";
import type { LengthNumbers } from "./long-conversation.ts";
import { percentile, type Spread, type TurnNumbers } from "./measure.ts";
import type { StreamingNumbers } from "./streaming.ts";

/** All rounds of one subject. */
export interface SubjectRounds {
  name: string;
  single: TurnNumbers[];
  loaded: TurnNumbers[];
  residentMb: Record<string, number>;
  redisCommands: number;
  redisScripts: number;
}

function median(values: readonly number[]): number {
  return percentile(values, 0.5);
}

function ms(value: number): string {
  return value.toFixed(value < 10 ? 2 : 0);
}

type PartName = "before" | "tool" | "after";

function partCell(rounds: readonly TurnNumbers[], part: PartName): string {
  const of = (pick: (spread: Spread) => number): string => ms(median(rounds.map((round) => pick(round[part]))));
  return `${of(({ p50 }) => p50)} / ${of(({ p99 }) => p99)}`;
}

function row(cells: readonly (string | number)[]): string {
  return `| ${cells.join(" | ")} |`;
}

function table(header: readonly string[], rows: readonly (readonly (string | number)[])[]): string {
  return [row(header), row(header.map(() => "---")), ...rows.map(row)].join("\n");
}

export function latencyTable(subjects: readonly SubjectRounds[]): string {
  const rows = subjects.flatMap(({ name, single, loaded }) =>
    [["1", single] as const, ["32", loaded] as const].map(([inFlight, rounds]) => [
      name,
      inFlight,
      ...(["before", "tool", "after"] as const).map((part) => partCell(rounds, part)),
    ]),
  );
  return table(["p50 / p99, ms", "in flight", "webhook to model", "tool round trip", "model to reply"], rows);
}

export function addedTable([raw, ...others]: readonly SubjectRounds[]): string {
  const p50 = ({ single }: SubjectRounds, part: PartName): number => median(single.map((round) => round[part].p50));
  const rows = others.map((subject) => [
    subject.name,
    ...(["before", "tool", "after"] as const).map((part) =>
      raw === undefined ? "" : ms(p50(subject, part) - p50(raw, part)),
    ),
  ]);
  return table(
    ["added to the raw loop, p50 ms, 1 in flight", "before the model", "per tool call", "after the model"],
    rows,
  );
}

export function throughputTable(subjects: readonly SubjectRounds[]): string {
  const naive = subjects.find(({ name }) => name.startsWith("naive"));
  const perSecond = ({ loaded }: SubjectRounds): number => median(loaded.map(({ turnsPerSecond }) => turnsPerSecond));
  const rows = subjects.map((subject) => [
    subject.name,
    perSecond(subject).toFixed(0),
    naive === undefined ? "" : (perSecond(subject) / perSecond(naive)).toFixed(2),
    ms(median(subject.loaded.map(({ cpuMs }) => cpuMs))),
    subject.redisScripts.toFixed(1),
    subject.redisCommands.toFixed(0),
  ]);
  return table(
    [
      "32 in flight, one tool call per turn",
      "turns/s",
      "of naive BullMQ",
      "CPU ms per turn",
      "Redis scripts per turn",
      "Redis commands per turn",
    ],
    rows,
  );
}

export function memoryTable(subjects: readonly SubjectRounds[]): string {
  const rows = subjects.map(({ name, residentMb }) => [
    name,
    Object.entries(residentMb)
      .map(([process, megabytes]) => `${process} ${megabytes.toFixed(0)}`)
      .join(", "),
  ]);
  return table(["resident memory after the load", "MB"], rows);
}

export function lengthTable(raw: readonly LengthNumbers[], larkline: readonly LengthNumbers[]): string {
  const rows = larkline.map(({ turns, beforeMs, afterMs, redisBytes }, index) => [
    turns,
    ms(beforeMs),
    ms(raw[index]?.beforeMs ?? Number.NaN),
    ms(beforeMs - (raw[index]?.beforeMs ?? Number.NaN)),
    ms(afterMs),
    redisBytes.toFixed(0),
  ]);
  return table(
    [
      "turns in the conversation",
      "webhook to model, p50 ms",
      "raw loop",
      "difference",
      "model to reply",
      "bytes read from Redis per turn",
    ],
    rows,
  );
}

export function recoveryTable(workers: readonly number[], runners: readonly number[]): string {
  const line = (name: string, times: readonly number[]) => [
    name,
    (median(times) / 1_000).toFixed(1),
    (Math.max(...times) / 1_000).toFixed(1),
    times.length,
  ];
  return table(
    ["kill -9 to the answer, s", "p50", "longest", "kills"],
    [
      line("agent-worker in the middle of a model step", workers),
      line("tool-runner in the middle of a pure call", runners),
    ],
  );
}

function secondsCell({ p50, p99 }: Spread): string {
  return `${(p50 / 1_000).toFixed(1)} / ${(p99 / 1_000).toFixed(1)}`;
}

/** `bound`: what the platform's limits alone allow. */
export function streamingTable(
  measured: StreamingNumbers,
  bound: Omit<StreamingNumbers, "refusals" | "stopMs">,
): string {
  const { chats, streamMs, refusals, stopMs } = measured;
  const spans = [
    ["message to visible card, s", "card"],
    ["message to first visible text, s", "firstText"],
    ["message to last frame, s", "closed"],
  ] as const;
  const mean = ({ framesPerCard }: Pick<StreamingNumbers, "framesPerCard">): string => framesPerCard.mean.toFixed(1);
  return table(
    [`${chats} chats at once, each streaming for ${streamMs / 1_000} s, p50 / p99`, "Larkline", "limits alone"],
    [
      ...spans.map(([name, part]) => [name, secondsCell(measured[part]), secondsCell(bound[part])]),
      ["texts typed on a card: mean, least", `${mean(measured)}, ${measured.framesPerCard.least}`, mean(bound)],
      ["calls that the platform refused", refusals, 0],
      ["click on stop to the closed card, one at a time, ms", `${ms(stopMs.p50)} / ${ms(stopMs.p99)}`, ""],
    ],
  );
}

function spreadCell(value: Spread | undefined): string {
  return value === undefined ? "" : `${ms(value.p50)} / ${ms(value.p99)}`;
}

export function levelTable([plain, ...levels]: readonly LevelNumbers[]): string {
  const rows = [...(plain === undefined ? [] : [plain]), ...levels].map(({ name, roundTripMs, callsPerSecond }) => [
    name,
    `${roundTripMs.p50.toFixed(3)} / ${roundTripMs.p99.toFixed(3)}`,
    callsPerSecond.toFixed(0),
  ]);
  return table(["one call of a tool that does nothing", "round trip p50 / p99, ms", "calls/s, 2 at once"], rows);
}

export function approvalTable(numbers: readonly ApprovalNumbers[]): string {
  const rows = numbers.map(({ name, turnsPerSecond, clickMs, resumedMs }) => [
    name,
    turnsPerSecond.toFixed(0),
    spreadCell(clickMs),
    spreadCell(resumedMs),
  ]);
  return table(
    [
      "one tool call per turn",
      "turns/s",
      "click to its answer p50 / p99, ms",
      "click to the turn's answer p50 / p99, ms",
    ],
    rows,
  );
}

export function burstTable(numbers: readonly BurstNumbers[]): string {
  const rows = numbers.map(({ name, sent, perSecond, ackMs, repeated, answeredSeconds, lost }) => [
    name,
    `${sent} at ${perSecond.toFixed(0)}/s`,
    spreadCell(ackMs),
    repeated,
    answeredSeconds.toFixed(0),
    lost,
  ]);
  return table(
    [
      "a burst, whatever is answered",
      "messages",
      "acknowledged p50 / p99, ms",
      "not at the first try",
      "all answered after, s",
      "lost",
    ],
    rows,
  );
}

export function scaleTable(numbers: readonly ScaleNumbers[]): string {
  const rows = numbers.map(({ workers, turnsPerSecond, bound }) => [
    workers,
    turnsPerSecond.toFixed(0),
    bound.toFixed(0),
    (turnsPerSecond / bound).toFixed(2),
  ]);
  return table(["workers of 20 slots, a model that takes 0.5 s", "turns/s", "slots alone allow", "of that"], rows);
}

export function waitingTable({
  sessions,
  jobs,
  workerMb,
  redisBytes,
  othersPerSecond,
  resumedMs,
}: WaitingNumbers): string {
  return table(
    [`${sessions} sessions wait for a person`, "before", "while they wait"],
    [
      ["jobs that are active or due", 0, jobs],
      ["memory of the worker, MB", workerMb.before.toFixed(0), workerMb.waiting.toFixed(0)],
      ["Redis memory of each, bytes", "", redisBytes.toFixed(0)],
      ["turns/s of others", othersPerSecond.before.toFixed(0), othersPerSecond.waiting.toFixed(0)],
      ["click to the turn's answer p50 / p99, ms", "", spreadCell(resumedMs)],
    ],
  );
}

/** Growth over the second half, MB an hour, by least squares. */
function slopeOf(points: readonly { minutes: number; megabytes: number }[]): number {
  const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
  const minutes = mean(points.map((point) => point.minutes));
  const level = mean(points.map((point) => point.megabytes));
  const covariance = mean(points.map((point) => (point.minutes - minutes) * (point.megabytes - level)));
  return (covariance / mean(points.map((point) => (point.minutes - minutes) ** 2))) * 60;
}

export function soakTable(samples: readonly SoakSample[]): string {
  const half = samples.slice(Math.floor(samples.length / 2));
  const [last] = samples.slice(-1);
  const at = (share: number): SoakSample | undefined => samples[Math.floor((samples.length - 1) * share)];
  const shown = [at(0.1), at(0.5), at(1)].flatMap((sample) => (sample === undefined ? [] : [sample]));
  const rows = Object.keys(last?.megabytes ?? {}).map((name) => [
    name,
    ...shown.map(({ megabytes }) => (megabytes[name] ?? Number.NaN).toFixed(0)),
    slopeOf(half.map(({ minutes, megabytes }) => ({ minutes, megabytes: megabytes[name] ?? Number.NaN }))).toFixed(1),
  ]);
  const heads = shown.map(({ minutes, turns }) => `after ${minutes.toFixed(0)} min, ${turns} turns`);
  return table(["memory, MB", ...heads, "growth in the second half, MB/h"], rows);
}
