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

/** What a process counts or shows by itself, see `Metrics`. */
export interface InstrumentFacts extends Omit<MetricFacts, "by" | "kind"> {
  readonly by: readonly (ObservedService | "console")[];
  readonly kind: MetricFacts["kind"] | "gauge";
  /** Upper bounds of a histogram. Default: those of durations from 1 ms to 5 minutes. */
  readonly buckets?: readonly number[];
}

const ingress = ["ingress"] as const;
const worker = ["agent-worker"] as const;
const runner = ["tool-runner"] as const;
const console = ["console"] as const;
const all = ["ingress", "agent-worker", "tool-runner"] as const;
/** Processes that run calls: the worker runs those of built-in tools. */
const callers = ["agent-worker", "tool-runner"] as const;
/** Processes that call the platform. */
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
export const undecidedOutcomes: ReadonlySet<string> = new Set([
  "duplicate",
  "failed",
  "not_ready",
  "unsure",
]);

/** What takes time, by name. */
export const spanCatalogue = {
  "message.receive": {
    by: ingress,
    help: "A message from its bytes until it is stored or refused; that which decides is the root of its trace.",
  },
  "turn.run": { by: worker, help: "One claim of a turn: until it ends, waits or is handed over." },
  "model.step": {
    by: worker,
    within: ["turn.run"],
    help: "One request to a model, with its retries and fallbacks.",
  },
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
  "message.received": { by: ingress, help: "A message has come." },
  "message.refused": { by: ingress, help: "It is not for the bot, or not taken: `reason`." },
  "message.appended": {
    by: ingress,
    help: "It is stored: `session`, `seq`, and how many are `ahead`.",
  },
  "turn.claimed": {
    by: worker,
    help: "A worker has taken the turn, after `queuedMs` and `tries` crashes.",
  },
  "turn.healed": { by: worker, help: "Something was found left lying and is taken up: `what`." },
  "model.retried": {
    by: worker,
    help: "A call of a model went wrong and is followed by another one: `model`, `code`, `waitMs`, `attempt`, what the vendor said (`problem`, without secrets) and its `requestId`.",
  },
  "call.judged": { by: worker, help: "The policy has decided about a call: `tool`, `decision`." },
  "call.handed_out": { by: worker, help: "A call is in the queue of its runner." },
  "call.outcome": {
    by: callers,
    help: "A call has ended: `tool`, `outcome`, `queuedMs`, `ranMs`.",
  },
  "approval.asked": { by: worker, help: "People are asked." },
  "approval.settled": {
    by: worker,
    help: "They have decided, or their time is over: `state`, `waitedMs`.",
  },
  "turn.ended": {
    by: worker,
    help: "A turn is committed: `outcome`; the `agent` that was paused.",
  },
  "reply.sent": { by: senders, help: "The platform has a reply, after `attempts`." },
  "reply.failed": {
    by: senders,
    help: "A reply could not be sent this time, or is given up: `reason`.",
  },
  "limiter.waited": { by: senders, help: "A call of the platform was held back: `api`, `ms`." },
  "stream.first_text": { by: worker, help: "The first text of an answer is visible, after `ms`." },
} as const satisfies Record<string, ObservationFacts>;

/** Samples, by name. Durations are in seconds, money in US dollars. */
export const metricCatalogue = {
  ack_seconds: {
    by: ingress,
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
  "model.cost_usd": {
    by: worker,
    kind: "counter",
    labels: ["model"],
    help: "Cost of model steps in US dollars.",
  },
  "model.retries": {
    by: worker,
    kind: "counter",
    labels: ["model", "code"],
    help: "Calls of models that went wrong and were followed by another one.",
  },
  "tool.calls": {
    by: runner,
    kind: "counter",
    labels: ["tool", "outcome"],
    help: "Calls of tools that have ended.",
  },
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

/** People take seconds or days. */
const waitBuckets = [1, 5, 15, 30, 60, 300, 900, 3_600, 14_400, 86_400, 604_800] as const;

/** All other metrics, by their names in Prometheus. */
export const instrumentCatalogue: Readonly<Record<string, InstrumentFacts>> = {
  larkline_ingress_messages_total: {
    by: ingress,
    kind: "counter",
    labels: ["channel", "outcome"],
    help: "Messages by channel and what became of them (accepted, duplicate, full, late, not_mentioned, ...).",
  },
  larkline_ingress_events_total: {
    by: ingress,
    kind: "counter",
    labels: ["type", "outcome"],
    help: "Events of the platform by type (unknown: without a handler).",
  },
  larkline_ingress_ack_seconds: {
    by: ingress,
    kind: "histogram",
    labels: ["transport", "outcome"],
    help: "Time until an event of the platform, of whatever type, was acknowledged or given back.",
  },
  larkline_ingress_other_events_total: {
    by: ingress,
    kind: "counter",
    labels: ["kind", "outcome"],
    help: "Events and clicks that are not Larkline's own, by what became of them at each consumer.",
  },
  larkline_ingress_webhook_refused_total: {
    by: ingress,
    kind: "counter",
    labels: ["status"],
    help: "Webhook requests that were forged, unreadable or of another app.",
  },
  larkline_ingress_streams: {
    by: ingress,
    kind: "gauge",
    labels: [],
    help: "Event streams that are open now.",
  },
  larkline_turn_runs_total: {
    by: worker,
    kind: "counter",
    labels: ["outcome"],
    help: "Runs of turns by how they ended; a turn with slow tools has several.",
  },
  larkline_turn_run_seconds: {
    by: worker,
    kind: "histogram",
    labels: ["outcome"],
    help: "Time a run held its slot.",
  },
  larkline_turn_holds_total: {
    by: worker,
    kind: "counter",
    labels: ["end"],
    help: "Times that a turn kept its slot while its calls ran, by how that ended: answered, or else it was suspended.",
  },
  larkline_healed_total: {
    by: worker,
    kind: "counter",
    labels: ["what"],
    help: "What the sweeper found left lying and took up (wake, crash, deadline, expiry, outbox, ...).",
  },
  larkline_large_results_total: {
    by: worker,
    kind: "counter",
    labels: ["what"],
    help: "Results too large for their conversation: kept as a whole, or cut because they could not be kept.",
  },
  larkline_card_frames_total: {
    by: worker,
    kind: "counter",
    labels: [],
    help: "Frames of cards that reached the platform while their turns ran.",
  },
  larkline_card_first_frame_seconds: {
    by: worker,
    kind: "histogram",
    labels: [],
    help: "Time from the beginning of a turn until its card was visible.",
  },
  larkline_approvals_asked_total: {
    by: worker,
    kind: "counter",
    labels: ["kind"],
    help: "Questions to people: may a call run, what becomes of an unknown outcome, may such calls always run.",
  },
  larkline_approvals_settled_total: {
    by: worker,
    kind: "counter",
    labels: ["kind", "state"],
    help: "Questions of turns that are settled, by how.",
  },
  larkline_approval_wait_seconds: {
    by: worker,
    kind: "histogram",
    labels: ["kind", "state"],
    help: "Time from a question of a turn until it was settled.",
    buckets: waitBuckets,
  },
  larkline_budget_warnings_total: {
    by: worker,
    kind: "counter",
    labels: ["per", "period"],
    help: "Turns that were warned because a budget is spent by 80 % or more.",
  },
  larkline_budget_refusals_total: {
    by: worker,
    kind: "counter",
    labels: ["per", "period"],
    help: "Turns that were refused a model call because a budget is spent.",
  },
  larkline_data_kept_total: {
    by: worker,
    kind: "counter",
    labels: ["what"],
    help: "Conversations that expired, messages trimmed or archived, audit records dropped or archived.",
  },
  larkline_data_waiting_sessions: {
    by: worker,
    kind: "gauge",
    labels: [],
    help: "Sessions whose newest turns are not archived and bounded yet, as this worker last saw it.",
  },
  larkline_data_rounds_total: {
    by: worker,
    kind: "counter",
    labels: ["outcome"],
    help: "Rounds of looking after stored data, by whether all of it went well.",
  },
  larkline_tool_call_seconds: {
    by: runner,
    kind: "histogram",
    labels: ["tool"],
    help: "Time a tool took, without queueing.",
  },
  larkline_tool_calls_running: {
    by: runner,
    kind: "gauge",
    labels: [],
    help: "Tool calls that this runner works on.",
  },
  larkline_tool_calls_refused_total: {
    by: runner,
    kind: "counter",
    labels: [],
    help: "Calls whose envelope was not good.",
  },
  larkline_tool_messages_dropped_total: {
    by: runner,
    kind: "counter",
    labels: ["tool"],
    help: "Messages of tools in processes of their own that were of no known kind or form.",
  },
  larkline_sandbox_holds: {
    by: runner,
    kind: "gauge",
    labels: ["tier"],
    help: "Whether the sandbox in use keeps programs in (1 or 0).",
  },
  larkline_console_sign_ins_total: {
    by: console,
    kind: "counter",
    labels: ["outcome"],
    help: "Tries to sign in by what became of them (signed_in, wrong, too_many).",
  },
  larkline_console_actions_total: {
    by: console,
    kind: "counter",
    labels: ["action"],
    help: "What operators did (content_shown, rule_revoked, turn_cancelled, and actions on queues such as retry).",
  },
  larkline_trace_entries_dropped_total: {
    by: all,
    kind: "counter",
    labels: [],
    help: "Entries of traces that are lost, because Redis did not take them or not fast enough.",
  },
  larkline_events_total: { by: all, kind: "counter", labels: ["event"], help: "Events by name." },
  larkline_errors_total: {
    by: all,
    kind: "counter",
    labels: [],
    help: "Errors that were reported to observers.",
  },
  larkline_state_up: {
    by: console,
    kind: "gauge",
    labels: [],
    help: "Whether Redis could be read (1 or 0).",
  },
  larkline_queue_jobs: {
    by: console,
    kind: "gauge",
    labels: ["queue", "state"],
    help: "Jobs of a queue (`turns`, `tools-<runner>`) that are `waiting`, `active`, `delayed` or `failed` without an answer.",
  },
  larkline_queue_oldest_seconds: {
    by: console,
    kind: "gauge",
    labels: ["queue"],
    help: "Age of the oldest waiting job; 0 when none waits. Autoscaling looks at it.",
  },
  larkline_sessions: {
    by: console,
    kind: "gauge",
    labels: ["state"],
    help: "Sessions that are `queued`, `running` or `suspended` (waiting for tools or people).",
  },
  larkline_message_oldest_seconds: {
    by: console,
    kind: "gauge",
    labels: ["state"],
    help: "Age of the oldest message that is being answered, by the state of its session; 0 when there is none.",
  },
  larkline_outbox_sessions: {
    by: console,
    kind: "gauge",
    labels: [],
    help: "Sessions with replies that the platform has not confirmed.",
  },
  larkline_outbox_oldest_seconds: {
    by: console,
    kind: "gauge",
    labels: [],
    help: "Age of the oldest reply that the platform has not confirmed.",
  },
  larkline_calls_open: {
    by: console,
    kind: "gauge",
    labels: [],
    help: "Tool calls without an outcome.",
  },
  larkline_approvals_open: {
    by: console,
    kind: "gauge",
    labels: [],
    help: "Questions to people that are open.",
  },
  larkline_workers: { by: console, kind: "gauge", labels: [], help: "Living workers." },
  larkline_runners: {
    by: console,
    kind: "gauge",
    labels: ["runner"],
    help: "Living instances of a runner.",
  },
  larkline_feishu_month_calls: {
    by: console,
    kind: "gauge",
    labels: ["app"],
    help: "Calls of the platform this month that count against its quota.",
  },
  larkline_feishu_month_limit: {
    by: console,
    kind: "gauge",
    labels: ["app"],
    help: "Calls that an app may make in a month (`feishu.monthlyCalls`); absent without that setting.",
  },
  larkline_dead_letters: {
    by: console,
    kind: "gauge",
    labels: [],
    help: "Dead letters: messages, replies, questions.",
  },
  larkline_redis_memory_bytes: {
    by: console,
    kind: "gauge",
    labels: ["node"],
    help: "Memory that Redis takes.",
  },
  larkline_redis_memory_limit_bytes: {
    by: console,
    kind: "gauge",
    labels: ["node"],
    help: "Memory that Redis may take; without a limit, the memory of its machine.",
  },
  larkline_redis_persists: {
    by: console,
    kind: "gauge",
    labels: ["node"],
    help: "Whether Redis keeps an append-only file and can write it (1 or 0).",
  },
};

export type SpanName = keyof typeof spanCatalogue;
export type EventName = keyof typeof eventCatalogue;
export type MetricName = keyof typeof metricCatalogue;

/** The name of a sample in Prometheus: base units last, then `_total` for what only grows. */
export function prometheusName(name: string, { kind }: Pick<MetricFacts, "kind">): string {
  return `larkline_${name.replaceAll(".", "_")}${kind === "counter" ? "_total" : ""}`;
}
