/** A process that observes itself. */
export type ObservedService = "ingress" | "agent-worker" | "tool-runner";

/** What an event or a span stands for. */
export interface ObservationFacts {
  readonly help: string;
  /** Processes it comes from. */
  readonly by: readonly ObservedService[];
}

/** What a sample stands for, and what monitoring makes of it. */
export interface MetricFacts extends ObservationFacts {
  /** A counter adds the samples up; a histogram counts them by size. */
  readonly kind: "counter" | "histogram";
  /** Tags that tell series apart. Few values each: never an id. All other tags are left out. */
  readonly labels: readonly string[];
}

const edge = ["ingress"] as const;
const worker = ["agent-worker"] as const;
const runner = ["tool-runner"] as const;
/** Whoever runs calls: those of built-in tools are the worker's own. */
const callers = ["agent-worker", "tool-runner"] as const;
/** Whoever speaks to the platform. */
const senders = ["ingress", "agent-worker"] as const;

/** What a span stands for, and its place in the trace of its message: directly below the root, if nothing else is said. */
export interface SpanFacts extends ObservationFacts {
  /** Spans of the same process that it is a part of while they are open. */
  readonly within?: readonly string[];
}

/**
 * Tags `outcome` at the end of a `message.receive` that has not decided about its message: another delivery
 * has, or will. Every other one is the root of the trace, unless `continued` says that a client began it.
 */
export const undecidedOutcomes: ReadonlySet<string> = new Set(["duplicate", "failed", "not_ready", "unsure"]);

/** What takes time, by name. */
export const spanCatalogue = {
  "message.receive": {
    by: edge,
    help: "A message from its bytes until it is stored or refused; that which decides is the root of its trace.",
  },
  "turn.run": { by: worker, help: "One claim of a turn: until it ends, waits or is handed over." },
  "model.step": { by: worker, within: ["turn.run"], help: "One request to a model, with its retries and fallbacks." },
  "tool.run": { by: runner, help: "One attempt of a call in its runner." },
  "card.write": {
    by: senders,
    within: ["reply.deliver", "turn.run"],
    help: "One call of the platform that writes a card or a message.",
  },
  "reply.deliver": { by: senders, help: "One try to send a reply from the outbox." },
} as const satisfies Record<string, SpanFacts>;

/** What happens, by name. */
export const eventCatalogue = {
  "message.received": { by: edge, help: "A message has come." },
  "message.refused": { by: edge, help: "It is not for the bot, or not taken: `reason`." },
  "message.appended": { by: edge, help: "It is stored: `session`, `seq`, and how many are `ahead`." },
  "turn.claimed": { by: worker, help: "A worker has taken the turn, after `queuedMs` and `tries` crashes." },
  "turn.healed": { by: worker, help: "Something was found left lying and is taken up: `what`." },
  "model.retried": {
    by: worker,
    help: "A call of a model went wrong and is followed by another one: `model`, `code`, `waitMs`, `attempt`, what the vendor said (`problem`, without secrets) and its `requestId`.",
  },
  "call.judged": { by: worker, help: "The policy has decided about a call: `tool`, `decision`." },
  "call.handed_out": { by: worker, help: "A call is in the queue of its runner." },
  "call.outcome": { by: callers, help: "A call has ended: `tool`, `outcome`, `queuedMs`, `ranMs`." },
  "approval.asked": { by: worker, help: "People are asked." },
  "approval.settled": { by: worker, help: "They have decided, or their time is over: `state`, `waitedMs`." },
  "turn.ended": { by: worker, help: "A turn is committed: `outcome`." },
  "reply.sent": { by: senders, help: "The platform has a reply, after `attempts`." },
  "reply.failed": { by: senders, help: "A reply could not be sent this time, or is given up: `reason`." },
  "limiter.waited": { by: senders, help: "A call of the platform was held back: `api`, `ms`." },
  "stream.first_text": { by: worker, help: "The first text of an answer is visible, after `ms`." },
} as const satisfies Record<string, ObservationFacts>;

/** Samples, by name. Durations are in seconds, money in US dollars. */
export const metricCatalogue = {
  ack_seconds: {
    by: edge,
    kind: "histogram",
    labels: ["channel", "outcome"],
    help: "From the receipt of a message until it was acknowledged.",
  },
  first_text_seconds: {
    by: worker,
    kind: "histogram",
    labels: ["channel"],
    help: "From the receipt of a message until the first text of its answer was visible.",
  },
  turn_seconds: {
    by: worker,
    kind: "histogram",
    labels: ["outcome"],
    help: "From the receipt of a message until its turn was committed, waiting included.",
  },
  "model.step_seconds": {
    by: worker,
    kind: "histogram",
    labels: ["model", "outcome"],
    help: "Duration of a model step.",
  },
  "model.tokens": {
    by: worker,
    kind: "counter",
    labels: ["model", "kind"],
    help: "Tokens by kind: input, output, cache_read, cache_write.",
  },
  "model.cost_usd": { by: worker, kind: "counter", labels: ["model"], help: "Cost of model steps in US dollars." },
  "model.retries": {
    by: worker,
    kind: "counter",
    labels: ["model", "code"],
    help: "Calls of models that went wrong and were followed by another one.",
  },
  "tool.calls": { by: runner, kind: "counter", labels: ["tool", "outcome"], help: "Calls of tools that have ended." },
  "tool.queue_seconds": {
    by: runner,
    kind: "histogram",
    labels: ["tool"],
    help: "Time from handing a call out until its tool ran.",
  },
  "card.operations": {
    by: senders,
    kind: "counter",
    labels: ["operation", "result"],
    help: "Calls of the platform that write cards and messages.",
  },
  "limiter.wait_seconds": {
    by: senders,
    kind: "histogram",
    labels: ["api"],
    help: "Time that a call of the platform was held back by the shared limits.",
  },
  "reply.delivered_seconds": {
    by: senders,
    kind: "histogram",
    labels: ["kind"],
    help: "From the receipt of a message until its reply was with the platform.",
  },
} as const satisfies Record<string, MetricFacts>;

export type SpanName = keyof typeof spanCatalogue;
export type EventName = keyof typeof eventCatalogue;
export type MetricName = keyof typeof metricCatalogue;

/** The name of a sample in Prometheus: base units last, then `_total` for what only grows. */
export function prometheusName(name: string, { kind }: Pick<MetricFacts, "kind">): string {
  return `larkline_${name.replaceAll(".", "_")}${kind === "counter" ? "_total" : ""}`;
}
