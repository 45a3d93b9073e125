import type { ApprovalNumbers } from "./approvals.ts";
import type { BurstNumbers } from "./burst.ts";
import type { CallsAtOnce } from "./calls-at-once.ts";
import type { ModelWaitNumbers, ScaleNumbers } from "./workers.ts";
import type { SoakSample } from "./soak.ts";
import type { WaitingNumbers } from "./waiting.ts";
import type { LevelNumbers } from "./levels.ts";
import type { LengthNumbers, TurnParts } from "./long-conversation.ts";
import { median, processNames, type PerProcess, type Spread, type TurnNumbers } from "./measure.ts";
import { profiledNames, type CauseNumbers } from "./profile.ts";
import type { StreamingBound, StreamingNumbers } from "./streaming.ts";
import type { FollowNumbers, ViewNumbers } from "./views.ts";

/** All rounds of one subject; rounds of several subjects with the same index belong together. */
export interface SubjectRounds {
  name: string;
  /** One message in flight, and 32. */
  single: TurnNumbers[];
  loaded: TurnNumbers[];
  memoryMb: PerProcess;
  /** Bytes of the largest checkpoint of one turn. */
  checkpoint: number;
}

function ms(value: number): string {
  return value.toFixed(value < 10 ? 2 : 0);
}

function row(cells: readonly (string | number)[]): string {
  return `| ${cells.join(" | ")} |`;
}

export function table(
  header: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): string {
  return [row(header), row(header.map(() => "---")), ...rows.map(row)].join("\n");
}

function cpuOf({ cpuMs }: TurnNumbers): number {
  return processNames.reduce((sum, name) => sum + cpuMs[name], 0);
}

/** The baselines among the subjects: what every row is compared with. */
function baselinesOf(subjects: readonly SubjectRounds[]): {
  naive: SubjectRounds;
  raw: SubjectRounds;
} {
  const naive = subjects.find(({ name }) => name.startsWith("naive"));
  const raw = subjects.find(({ name }) => name.startsWith("raw"));
  if (naive === undefined || raw === undefined) throw new Error("a baseline was not measured");
  return { naive, raw };
}

/** Median of what two subjects differ in, each round compared with the same round of the other. */
export function compared<Round>(
  rounds: readonly Round[],
  others: readonly Round[],
  compare: (one: Round, other: Round) => number,
): number {
  return median(
    rounds.flatMap((round, index) => {
      const other = others[index];
      return other === undefined ? [] : [compare(round, other)];
    }),
  );
}

export function throughputTable(subjects: readonly SubjectRounds[]): string {
  const { naive, raw } = baselinesOf(subjects);
  const rows = subjects.map(({ name, loaded }) => {
    const of = (pick: (round: TurnNumbers) => number): number => median(loaded.map(pick));
    const ratio = (to: SubjectRounds, pick: (round: TurnNumbers) => number): string =>
      compared(loaded, to.loaded, (one, other) => pick(one) / pick(other)).toFixed(2);
    const perSecond = ({ turnsPerSecond }: TurnNumbers): number => turnsPerSecond;
    return [
      name,
      of(perSecond).toFixed(0),
      ratio(naive, perSecond),
      ratio(raw, perSecond),
      ms(of(cpuOf)),
      ratio(naive, cpuOf),
      ratio(raw, cpuOf),
      of(({ redisScripts }) => redisScripts).toFixed(1),
      of(({ redisCommands }) => redisCommands).toFixed(0),
    ];
  });
  return table(
    [
      "32 in flight, one tool call per turn",
      "turns/s",
      "to naive",
      "to raw",
      "CPU ms per turn",
      "to naive",
      "to raw",
      "Redis scripts per turn",
      "Redis commands per turn",
    ],
    rows,
  );
}

/** A durable peer first; the brackets hold how many times as much the other one has in the same round. */
export function peerTable(subjects: readonly SubjectRounds[]): string {
  const [peer] = subjects;
  const rows = subjects.map(({ name, single, loaded }, index) => {
    const cell = (rounds: readonly TurnNumbers[], pick: (round: TurnNumbers) => number): string => {
      const base = (rounds === single ? peer?.single : peer?.loaded) ?? [];
      const ratio = compared(rounds, base, (one, other) => pick(one) / pick(other));
      return `${ms(median(rounds.map(pick)))}${index === 0 ? "" : ` (${ratio.toFixed(2)})`}`;
    };
    return [
      name,
      cell(loaded, ({ turnsPerSecond }) => turnsPerSecond),
      cell(loaded, cpuOf),
      cell(single, ({ ack }) => ack.p50),
      cell(single, ({ before }) => before.p50),
      cell(single, ({ tool }) => tool.p50),
      cell(single, ({ after }) => after.p50),
    ];
  });
  const header = [
    "one tool call per turn",
    "turns/s, 32 in flight",
    "CPU ms per turn",
    "1 in flight, p50 ms: acknowledged",
    "webhook to model",
    "tool round trip",
    "model to reply",
  ];
  return table(header, rows);
}

/** One line about a round, while the bench runs. */
export function summaryOf(round: TurnNumbers): string {
  const { turnsPerSecond, harnessMs, foreignCores, redisCommands, cpuMs } = round;
  const redis = `Redis ${redisCommands.toFixed(0)} commands and ${ms(cpuMs.Redis)} ms`;
  return `${turnsPerSecond.toFixed(0)} turns/s, CPU ${ms(cpuOf(round))} ms, ${redis}, harness ${ms(harnessMs)} ms, others ${foreignCores.toFixed(2)} cores`;
}

export function cpuTable(subjects: readonly SubjectRounds[]): string {
  const rows = subjects.map(({ name, loaded }) => [
    name,
    ...processNames.map((process) => ms(median(loaded.map(({ cpuMs }) => cpuMs[process])))),
    ms(median(loaded.map(({ harnessMs }) => harnessMs))),
    median(loaded.map(({ foreignCores }) => foreignCores)).toFixed(2),
  ]);
  return table(
    [
      "CPU ms per turn, 32 in flight",
      ...processNames,
      "sender, platform and model",
      "other programs of the machine, cores",
    ],
    rows,
  );
}

export function causeTable(title: string, causes: CauseNumbers): string {
  const sumOf = (numbers: readonly number[]): number =>
    numbers.reduce((sum, number) => sum + number, 0);
  const rows = [...causes]
    .map(([cause, numbers]) => ({ cause, each: profiledNames.map((name) => numbers[name]) }))
    .toSorted((left, right) => sumOf(right.each) - sumOf(left.each));
  const total = profiledNames.map((_, at) => sumOf(rows.map(({ each }) => each[at] ?? 0)));
  return table(
    [title, ...profiledNames, "together"],
    [...rows, { cause: "all", each: total }].map(({ cause, each }) => [
      cause,
      ...each.map(ms),
      ms(sumOf(each)),
    ]),
  );
}

const partNames = ["ack", "before", "tool", "after"] as const;
type PartName = (typeof partNames)[number];
const partHeads = ["acknowledged", "webhook to model", "tool round trip", "model to reply"];

export function latencyTable(subjects: readonly SubjectRounds[]): string {
  const cell = (rounds: readonly TurnNumbers[], part: PartName): string =>
    spreadCell({
      p50: median(rounds.map((round) => round[part].p50)),
      p99: median(rounds.map((round) => round[part].p99)),
    });
  const rows = subjects.map(({ name, single }) => [
    name,
    ...partNames.map((part) => cell(single, part)),
  ]);
  return table(["1 in flight, p50 / p99, ms", ...partHeads], rows);
}

/** What turns with one call and without any cost, the other version first; the brackets hold how many times as much it is now. */
export function besideTable(
  calls: readonly SubjectRounds[],
  plain: readonly SubjectRounds[],
): string {
  const rowsOf = (kind: string, subjects: readonly SubjectRounds[]): string[][] =>
    subjects.map(({ name, loaded, checkpoint }, index) => {
      const [base] = subjects;
      const cell = (pick: (round: TurnNumbers) => number, digits: number): string => {
        const shown = median(loaded.map(pick)).toFixed(digits);
        const ratio = compared(loaded, base?.loaded ?? [], (one, other) => pick(one) / pick(other));
        return index === 0 ? shown : `${shown} (${ratio.toFixed(3)})`;
      };
      return [
        kind,
        name,
        cell(({ turnsPerSecond }) => turnsPerSecond, 0),
        cell(cpuOf, 2),
        cell(({ redisScripts }) => redisScripts, 2),
        cell(({ redisCommands }) => redisCommands, 1),
        `${checkpoint} B`,
      ];
    });
  return table(
    ["32 in flight", "", "turns/s", "CPU ms", "Redis scripts", "Redis commands", "checkpoint"],
    [...rowsOf("one tool call per turn", calls), ...rowsOf("text only", plain)],
  );
}

/** The parts of a turn, the other version first; the brackets hold how many times as long it takes now. */
export function callTable(subjects: readonly SubjectRounds[]): string {
  const [before] = subjects;
  if (before === undefined) throw new Error("nothing was measured");
  const p50 = (rounds: readonly TurnNumbers[], part: PartName): number =>
    median(rounds.map((round) => round[part].p50));
  const rows = subjects.flatMap(({ name, single, loaded }) =>
    (
      [
        ["1", single, before.single],
        ["32", loaded, before.loaded],
      ] as const
    ).map(([inFlight, rounds, base]) => [
      name,
      inFlight,
      ...partNames.map((part) => {
        const ratio = p50(rounds, part) / p50(base, part);
        return rounds === base
          ? ms(p50(rounds, part))
          : `${ms(p50(rounds, part))} (${ratio.toFixed(2)})`;
      }),
    ]),
  );
  return table(["p50, ms", "in flight", ...partHeads], rows);
}

/** What it saves that turns keep their slots while their calls run; the first subject does not. */
export function holdTable(subjects: readonly SubjectRounds[]): string {
  const [base] = subjects;
  if (base === undefined) throw new Error("nothing was measured");
  const cell = (
    [rounds, others]: readonly [TurnNumbers[], TurnNumbers[]],
    pick: (round: TurnNumbers) => number,
    show: (number: number) => string,
  ): string => {
    const shown = show(median(rounds.map(pick)));
    return rounds === others
      ? shown
      : `${shown} (${compared(rounds, others, (one, other) => pick(one) / pick(other)).toFixed(2)})`;
  };
  const rows = subjects.flatMap(({ name, single, loaded }) =>
    (
      [
        ["1", [single, base.single]],
        ["32", [loaded, base.loaded]],
      ] as const
    ).map(([inFlight, rounds]) => [
      name,
      inFlight,
      cell(
        rounds,
        ({ redisScripts }) => redisScripts,
        (number) => number.toFixed(1),
      ),
      cell(
        rounds,
        ({ redisCommands }) => redisCommands,
        (number) => number.toFixed(0),
      ),
      cell(rounds, cpuOf, ms),
      cell(rounds, ({ tool }) => tool.p50, ms),
    ]),
  );
  return table(
    [
      "per turn with one tool call",
      "in flight",
      "Redis scripts",
      "Redis commands",
      "CPU ms",
      "tool round trip, p50 ms",
    ],
    rows,
  );
}

/** Of each pair a worker that writes down nothing of runs is the first; the brackets hold how many times as much the other one takes. */
export function observingTable(pairs: readonly (readonly SubjectRounds[])[]): string {
  const compare = pairs.flatMap((pair) =>
    pair.map((subject) => ({ ...subject, base: pair[0] ?? subject })),
  );
  const rows = compare.flatMap(({ name, single, loaded, base }) =>
    (
      [
        ["1", single, base.single],
        ["32", loaded, base.loaded],
      ] as const
    ).map(([inFlight, rounds, others]) => {
      const cell = (
        pick: (round: TurnNumbers) => number,
        show: (number: number) => string,
      ): string => {
        const shown = show(median(rounds.map(pick)));
        const ratio = compared(rounds, others, (one, other) => pick(one) / pick(other));
        return rounds === others ? shown : `${shown} (${ratio.toFixed(3)})`;
      };
      return [
        name,
        inFlight,
        cell(cpuOf, ms),
        cell(({ cpuMs }) => cpuMs["agent-worker"], ms),
        cell(({ cpuMs }) => cpuMs.Redis, ms),
        cell(
          ({ redisScripts }) => redisScripts,
          (number) => number.toFixed(2),
        ),
        cell(
          ({ redisCommands }) => redisCommands,
          (number) => number.toFixed(1),
        ),
      ];
    }),
  );
  return table(
    [
      "per turn with one tool call",
      "in flight",
      "CPU ms",
      "worker",
      "Redis",
      "Redis scripts",
      "Redis commands",
    ],
    rows,
  );
}

export function addedTable(subjects: readonly SubjectRounds[]): string {
  const { naive, raw } = baselinesOf(subjects);
  const rows = subjects
    .filter((subject) => subject !== raw)
    .map(({ name, single }) => [
      name,
      ...partNames.map((part) =>
        [naive, raw]
          .map((to) =>
            ms(compared(single, to.single, (one, other) => one[part].p50 - other[part].p50)),
          )
          .join(", "),
      ),
    ]);
  return table(["added to naive, to raw; 1 in flight, p50, ms", ...partHeads], rows);
}

export function memoryTable(subjects: readonly SubjectRounds[]): string {
  const rows = subjects.map(({ name, memoryMb }) => [
    name,
    ...processNames.map((process) => (memoryMb[process] === 0 ? "" : memoryMb[process].toFixed(0))),
  ]);
  return table(["resident memory after the load, MB", ...processNames], rows);
}

export function lengthTable(numbers: readonly LengthNumbers[]): string {
  const cell = ({ long, fresh }: LengthNumbers, part: keyof TurnParts): string =>
    `${ms(long[part])} / ${ms(fresh[part])}`;
  const rows = numbers.map((one) => [
    one.turns,
    one.name,
    cell(one, "before"),
    cell(one, "tool"),
    cell(one, "after"),
    (one.requestBytes / 1_024).toFixed(0),
    one.redisBytes.toFixed(0),
  ]);
  return table(
    [
      "turns in the chat",
      "this chat / a fresh one, p50 ms",
      "webhook to model",
      "tool round trip",
      "model to reply",
      "model request, KB",
      "bytes read from Redis per turn",
    ],
    rows,
  );
}

/** `killed` and `cutOff`: how workers and runners are lost. Times from then to the answer, ms. */
export function recoveryTable({
  killed,
  cutOff,
}: {
  killed: { workers: readonly number[]; runners: readonly number[] };
  cutOff: { workers: readonly number[] };
}): string {
  const line = (name: string, times: readonly number[]) => [
    name,
    (median(times) / 1_000).toFixed(1),
    (Math.max(...times) / 1_000).toFixed(1),
    times.length,
  ];
  return table(
    ["from the loss of a process to the answer of another, s", "p50", "longest", "times"],
    [
      line("kill -9 of an agent-worker in the middle of a model step", killed.workers),
      line("kill -9 of a tool-runner in the middle of a pure call", killed.runners),
      line(
        "half-open connections of an agent-worker in a model step: all of its packets are lost",
        cutOff.workers,
      ),
    ],
  );
}

function secondsCell({ p50, p99 }: Spread): string {
  return `${(p50 / 1_000).toFixed(1)} / ${(p99 / 1_000).toFixed(1)}`;
}

/** `bound`: what the platform's limits alone allow. */
export function streamingTable(measured: StreamingNumbers, bound: StreamingBound): string {
  const { chats, streamMs, refusals, stopMs, firstTextMs } = measured;
  const spans = [
    ["message to visible card, s", "card"],
    ["message to first visible text, s", "firstText"],
    ["message to last frame, s", "closed"],
  ] as const;
  const mean = ({ framesPerCard }: Pick<StreamingNumbers, "framesPerCard">): string =>
    framesPerCard.mean.toFixed(1);
  return table(
    [
      `${chats} chats at once, each streaming for ${streamMs / 1_000} s, p50 / p99`,
      "Larkline",
      "limits alone",
    ],
    [
      ...spans.map(([name, part]) => [name, secondsCell(measured[part]), secondsCell(bound[part])]),
      [
        "texts typed on a card: mean, least",
        `${mean(measured)}, ${measured.framesPerCard.least}`,
        mean(bound),
      ],
      ["calls that the platform refused", refusals, 0],
      [
        "click on stop to the closed card, one at a time, ms",
        `${ms(stopMs.p50)} / ${ms(stopMs.p99)}`,
        "",
      ],
      [
        "the model's first word to the first text on a card, one at a time, ms",
        `${ms(firstTextMs.p50)} / ${ms(firstTextMs.p99)}`,
        "",
      ],
    ],
  );
}

function spreadCell(value: Spread | undefined): string {
  return value === undefined ? "" : `${ms(value.p50)} / ${ms(value.p99)}`;
}

export function levelTable(levels: readonly LevelNumbers[]): string {
  const rows = levels.map(({ name, roundTripMs, callsPerSecond }) => [
    name,
    `${roundTripMs.p50.toFixed(3)} / ${roundTripMs.p99.toFixed(3)}`,
    callsPerSecond.toFixed(0),
  ]);
  return table(
    ["one call of a tool that does nothing", "round trip p50 / p99, ms", "calls/s, 2 at once"],
    rows,
  );
}

export function atOnceTable(numbers: readonly CallsAtOnce[]): string {
  const rows = numbers.map(({ tool, calls, waitMs, tookMs, children, totalMb }) => [
    `${calls} calls of ${waitMs / 1_000} s, ${tool === "wait_shared" ? "`concurrency: 32`" : "a child for each"}`,
    (waitMs / 1_000).toFixed(1),
    (tookMs / 1_000).toFixed(1),
    children,
    totalMb.toFixed(0),
  ]);
  return table(
    [
      "calls at once, in a runner that has just started",
      "lower bound, s",
      "last answer, s",
      "processes",
      "memory, MB",
    ],
    rows,
  );
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
  const rows = numbers.map(
    ({ name, sent, perSecond, ackMs, coldAckMs, repeated, answeredSeconds, lost }) => [
      name,
      `${sent} at ${perSecond.toFixed(0)}/s`,
      spreadCell(ackMs),
      spreadCell(coldAckMs),
      `${repeated.warm}, ${repeated.cold}`,
      answeredSeconds.toFixed(0),
      lost,
    ],
  );
  return table(
    [
      "a burst, whatever is answered",
      "messages",
      "acknowledged p50 / p99, ms",
      "the first burst of new processes",
      "not at the first try: warm, first",
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
  return table(
    ["workers of 20 slots, a model that takes 0.5 s", "turns/s", "slots alone allow", "of that"],
    rows,
  );
}

export function modelWaitTable({ turns, workerMb }: ModelWaitNumbers): string {
  return table(
    [`${turns} turns of one worker wait for the model`, "before", "while they wait"],
    [["memory of the worker, MB", workerMb.before.toFixed(0), workerMb.waiting.toFixed(0)]],
  );
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
  const mean = (values: readonly number[]): number =>
    values.reduce((sum, value) => sum + value, 0) / values.length;
  const minutes = mean(points.map((point) => point.minutes));
  const level = mean(points.map((point) => point.megabytes));
  const covariance = mean(
    points.map((point) => (point.minutes - minutes) * (point.megabytes - level)),
  );
  return (covariance / mean(points.map((point) => (point.minutes - minutes) ** 2))) * 60;
}

export function soakTable(samples: readonly SoakSample[]): string {
  const half = samples.slice(Math.floor(samples.length / 2));
  const [last] = samples.slice(-1);
  const at = (share: number): SoakSample | undefined =>
    samples[Math.floor((samples.length - 1) * share)];
  const shown = [at(0.1), at(0.5), at(1)].flatMap((sample) =>
    sample === undefined ? [] : [sample],
  );
  const rows = Object.keys(last?.megabytes ?? {}).map((name) => [
    name,
    ...shown.map(({ megabytes }) => (megabytes[name] ?? Number.NaN).toFixed(0)),
    slopeOf(
      half.map(({ minutes, megabytes }) => ({ minutes, megabytes: megabytes[name] ?? Number.NaN })),
    ).toFixed(1),
  ]);
  const heads = shown.map(
    ({ minutes, turns }) => `after ${minutes.toFixed(0)} min, ${turns} turns`,
  );
  return table(["memory, MB", ...heads, "growth in the second half, MB/h"], rows);
}

export function followTable(follows: readonly FollowNumbers[]): string {
  return table(
    ["followers of a run", "events", "written to Redis to the loop of the SDK, p50 / p99, ms"],
    follows.map(({ followers, events, ms: times }) => [
      followers,
      events,
      `${ms(times.p50)} / ${ms(times.p99)}`,
    ]),
  );
}

export function viewTable(views: readonly ViewNumbers[], events: number): string {
  return table(
    [`view of a run of ${events} events`, "KB", "request to the last byte, p50 / p99, ms"],
    views.map(({ view, bytes, ms: times }) => [
      view,
      (bytes / 1_024).toFixed(0),
      `${ms(times.p50)} / ${ms(times.p99)}`,
    ]),
  );
}
