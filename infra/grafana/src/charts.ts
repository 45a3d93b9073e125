/** One picture: a number with bounds, or lines over time. */
export interface Chart {
  title: string;
  /** What to look for in it. */
  help: string;
  /** A unit of Grafana. */
  unit: "s" | "short" | "reqps" | "bytes" | "percentunit" | "currencyUSD";
  /** A number, not lines: from which value on it is yellow and red; the second below the first where less is worse. */
  bounds?: readonly [warning: number, critical: number];
  /** By its name in the legend. */
  queries: Readonly<Record<string, string>>;
}

export interface Row {
  title: string;
  charts: readonly Chart[];
}

/** Quantiles of a histogram. */
function quantiles(
  metric: string,
  by: string | undefined,
  wanted: readonly number[],
): Record<string, string> {
  const labels = by === undefined ? "le" : `le, ${by}`;
  const legend = by === undefined ? "" : ` {{${by}}}`;
  return Object.fromEntries(
    wanted.map((quantile) => [
      `p${quantile * 100}${legend}`,
      `histogram_quantile(${quantile}, sum by (${labels}) (rate(${metric}_bucket[$__rate_interval])))`,
    ]),
  );
}

function rateBy(metric: string, by: string): Record<string, string> {
  return { [`{{${by}}}`]: `sum by (${by}) (rate(${metric}[$__rate_interval]))` };
}

const answered: Row = {
  title: "Are people answered?",
  charts: [
    {
      title: "Oldest waiting message",
      help: "No worker has taken it. Alert: LarklineMessageWaits.",
      unit: "s",
      bounds: [20, 60],
      queries: { waiting: 'max(larkline_message_oldest_seconds{state="queued"})' },
    },
    {
      title: "Oldest undelivered reply",
      help: "Answered, and not with the platform. Alert: LarklineReplyNotDelivered.",
      unit: "s",
      bounds: [60, 300],
      queries: { undelivered: "max(larkline_outbox_oldest_seconds)" },
    },
    {
      title: "Workers",
      help: "Living ones. Alert: LarklineNoWorkers.",
      unit: "short",
      bounds: [2, 1],
      queries: { workers: "max(larkline_workers)" },
    },
    {
      title: "Redis answers",
      help: "1, or 0: then everything else of Redis is absent. Alert: LarklineStateUnknown.",
      unit: "short",
      bounds: [1, 0.5],
      queries: { answers: "max(larkline_state_up)" },
    },
    {
      title: "Memory of Redis",
      help: "When it is full nothing is taken any more. Alert: LarklineRedisFillsUp.",
      unit: "percentunit",
      bounds: [0.75, 0.9],
      queries: {
        taken: "max(larkline_redis_memory_bytes / (larkline_redis_memory_limit_bytes > 0))",
      },
    },
    {
      title: "Messages",
      help: "By what became of them when they came.",
      unit: "reqps",
      queries: rateBy("larkline_ack_seconds_count", "outcome"),
    },
    {
      title: "Acknowledged within",
      help: "The platform sends an event again that is not acknowledged within 3 s.",
      unit: "s",
      queries: quantiles("larkline_ack_seconds", undefined, [0.5, 0.99]),
    },
    {
      title: "First visible text within",
      help: "From the receipt of the message.",
      unit: "s",
      queries: quantiles("larkline_first_text_seconds", "channel", [0.5, 0.99]),
    },
    {
      title: "Reply with the platform within",
      help: "From the receipt of the message.",
      unit: "s",
      queries: quantiles("larkline_reply_delivered_seconds", "kind", [0.5, 0.99]),
    },
    {
      title: "Turns",
      help: "By how they ended.",
      unit: "reqps",
      queries: rateBy("larkline_turn_seconds_count", "outcome"),
    },
  ],
};

const waiting: Row = {
  title: "What waits",
  charts: [
    {
      title: "Sessions",
      help: "Suspended ones wait for tools or people, and hold no slot.",
      unit: "short",
      queries: { "{{state}}": "max by (state) (larkline_sessions)" },
    },
    {
      title: "Jobs that wait",
      help: "More processes empty a queue, but for those of tools with limits of their own.",
      unit: "short",
      queries: { "{{queue}}": 'max by (queue) (larkline_queue_jobs{state="waiting"})' },
    },
    {
      title: "Oldest job",
      help: "No process has taken it yet. Autoscaling looks at this.",
      unit: "s",
      queries: { "{{queue}}": "max by (queue) (larkline_queue_oldest_seconds)" },
    },
    {
      title: "Jobs under way",
      help: "A worker takes WORKER_CONCURRENCY at once, a runner RUNNER_CONCURRENCY.",
      unit: "short",
      queries: { "{{queue}}": 'max by (queue) (larkline_queue_jobs{state="active"})' },
    },
    {
      title: "Undelivered replies",
      help: "Sessions with replies that the platform has not confirmed.",
      unit: "short",
      queries: { sessions: "max(larkline_outbox_sessions)" },
    },
    {
      title: "Given up",
      help: "Messages, replies and questions that no operator has dealt with. Alert: LarklineDeadLetters.",
      unit: "short",
      queries: { "dead letters": "max(larkline_dead_letters)" },
    },
    {
      title: "Calls and questions that are open",
      help: "Questions wait for people.",
      unit: "short",
      queries: { calls: "max(larkline_calls_open)", questions: "max(larkline_approvals_open)" },
    },
  ],
};

const models: Row = {
  title: "Models",
  charts: [
    {
      title: "Steps",
      help: "ok, broken_off (stopped or handed over), or the code of the error.",
      unit: "reqps",
      queries: {
        "{{model}} {{outcome}}":
          "sum by (model, outcome) (rate(larkline_model_step_seconds_count[$__rate_interval]))",
      },
    },
    {
      title: "Step within",
      help: "Retries and fallbacks included.",
      unit: "s",
      queries: quantiles("larkline_model_step_seconds", "model", [0.5, 0.99]),
    },
    {
      title: "Tokens a second",
      help: "By kind.",
      unit: "short",
      queries: rateBy("larkline_model_tokens_total", "kind"),
    },
    {
      title: "Cost of an hour",
      help: "At the present pace, by the prices of the configuration.",
      unit: "currencyUSD",
      queries: {
        "{{model}}":
          "3600 * sum by (model) (rate(larkline_model_cost_usd_total[$__rate_interval]))",
      },
    },
    {
      title: "Budgets",
      help: "Turns that were warned or refused.",
      unit: "short",
      queries: {
        "warned, per {{per}} and {{period}}":
          "sum by (per, period) (increase(larkline_budget_warnings_total[$__rate_interval]))",
        "refused, per {{per}} and {{period}}":
          "sum by (per, period) (increase(larkline_budget_refusals_total[$__rate_interval]))",
      },
    },
  ],
};

const tools: Row = {
  title: "Tools and people",
  charts: [
    {
      title: "Calls by outcome",
      help: "unknown: it may or may not have taken effect.",
      unit: "reqps",
      queries: rateBy("larkline_tool_calls_total", "outcome"),
    },
    {
      title: "Calls by tool",
      help: "Those that have ended.",
      unit: "reqps",
      queries: rateBy("larkline_tool_calls_total", "tool"),
    },
    {
      title: "Call runs after",
      help: "From handing it out until its tool runs.",
      unit: "s",
      queries: quantiles("larkline_tool_queue_seconds", "tool", [0.99]),
    },
    {
      title: "Runners",
      help: "Living processes of each.",
      unit: "short",
      queries: { "{{runner}}": "max by (runner) (larkline_runners)" },
    },
    {
      title: "Questions that were settled",
      help: "expired: no person has decided.",
      unit: "short",
      queries: {
        "{{state}}":
          "sum by (state) (increase(larkline_approvals_settled_total[$__rate_interval]))",
      },
    },
  ],
};

const platform: Row = {
  title: "Feishu",
  charts: [
    {
      title: "Calls that write",
      help: "Cards and messages, by result.",
      unit: "reqps",
      queries: rateBy("larkline_card_operations_total", "result"),
    },
    {
      title: "Held back by the limits",
      help: "How long one call in ten waits at least, by API. Alert: LarklineLimiterSaturated.",
      unit: "s",
      queries: quantiles("larkline_limiter_wait_seconds", "api", [0.9]),
    },
    {
      title: "Calls this month",
      help: "Those that count against the quota. Alert: LarklineQuotaNearItsEnd.",
      unit: "short",
      queries: {
        "{{app}}": "max by (app) (larkline_feishu_month_calls)",
        "limit of {{app}}": "max by (app) (larkline_feishu_month_limit)",
      },
    },
  ],
};

const processes: Row = {
  title: "Processes and Redis",
  charts: [
    {
      title: "CPU",
      help: "Cores, by process.",
      unit: "short",
      queries: {
        "{{service}} {{instance}}":
          'sum by (service, instance) (rate(process_cpu_seconds_total{service!=""}[$__rate_interval]))',
      },
    },
    {
      title: "Memory",
      help: "Resident, by process.",
      unit: "bytes",
      queries: { "{{service}} {{instance}}": 'process_resident_memory_bytes{service!=""}' },
    },
    {
      title: "Event loop looks up after",
      help: "99 of 100 times. Alert: LarklineEventLoopBlocked.",
      unit: "s",
      queries: { "{{service}} {{instance}}": 'nodejs_eventloop_lag_p99_seconds{service!=""}' },
    },
    {
      title: "Turns found left lying",
      help: "Their processes died or stood still. Alert: LarklineHeals.",
      unit: "short",
      queries: {
        healed: 'sum(increase(larkline_events_total{event="turn.healed"}[$__rate_interval]))',
      },
    },
    {
      title: "Errors reported to observers",
      help: "The log of the process says more.",
      unit: "short",
      queries: {
        "{{service}}": "sum by (service) (increase(larkline_errors_total[$__rate_interval]))",
      },
    },
    {
      title: "Redis",
      help: "Memory, and what it may take.",
      unit: "bytes",
      queries: {
        "{{node}}": "max by (node) (larkline_redis_memory_bytes)",
        "limit of {{node}}": "max by (node) (larkline_redis_memory_limit_bytes)",
      },
    },
  ],
};

/** Everything that the dashboard shows, from what people feel down to the machines. */
export const rows: readonly Row[] = [answered, waiting, models, tools, platform, processes];
