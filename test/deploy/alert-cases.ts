/** Series in the notation of promtool, a value each minute: `0+1x20` grows by 1 twenty times, `_x20` is not there. */
export type SeriesByName = Readonly<Record<string, string>>;

const minutes = 40;
const still = (value: number): string => `${value}x${minutes}`;
const growing = (by: number): string => `0+${by}x${minutes}`;

/** A deployment that is well: none of the alerts is for it. */
export const wellSeries: SeriesByName = {
  'larkline_state_up{service="console"}': still(1),
  'larkline_workers{service="console"}': still(2),
  'larkline_runners{service="console",runner="default"}': still(2),
  'larkline_message_oldest_seconds{service="console",state="queued"}': still(1),
  'larkline_message_oldest_seconds{service="console",state="running"}': still(40),
  'larkline_outbox_oldest_seconds{service="console"}': still(2),
  'larkline_queue_jobs{service="console",queue="turns",state="failed"}': still(0),
  'larkline_queue_jobs{service="console",queue="tools-default",state="waiting"}': still(3),
  'larkline_queue_jobs{service="console",queue="tools-default.deploy",state="waiting"}': still(3),
  'larkline_queue_oldest_seconds{service="console",queue="tools-default"}': still(1),
  'larkline_ack_seconds_bucket{service="ingress",channel="feishu",outcome="accepted",le="0.1"}':
    growing(60),
  'larkline_ack_seconds_bucket{service="ingress",channel="feishu",outcome="accepted",le="5"}':
    growing(60),
  'larkline_ack_seconds_bucket{service="ingress",channel="feishu",outcome="accepted",le="+Inf"}':
    growing(60),
  'larkline_tool_calls_total{service="tool-runner",tool="search",outcome="ok"}': growing(30),
  'larkline_tool_calls_total{service="tool-runner",tool="search",outcome="error"}': growing(1),
  'larkline_sandbox_holds{service="tool-runner",instance="a:8000",tier="sbx"}': still(1),
  'larkline_model_step_seconds_count{service="agent-worker",model="m",outcome="ok"}': growing(60),
  'larkline_model_step_seconds_count{service="agent-worker",model="m",outcome="broken_off"}':
    growing(60),
  'larkline_model_step_seconds_count{service="agent-worker",model="m",outcome="api_overloaded"}':
    growing(1),
  'larkline_card_operations_total{service="agent-worker",operation="im.message.reply",result="ok"}':
    growing(60),
  'larkline_card_operations_total{service="agent-worker",operation="im.message.reply",result="rate_limit"}':
    growing(10),
  'larkline_limiter_wait_seconds_bucket{service="agent-worker",api="im",le="0.5"}': growing(60),
  'larkline_limiter_wait_seconds_bucket{service="agent-worker",api="im",le="30"}': growing(60),
  'larkline_limiter_wait_seconds_bucket{service="agent-worker",api="im",le="+Inf"}': growing(60),
  'larkline_feishu_month_calls{service="console",app="cli_a"}': still(7_000),
  'larkline_feishu_month_limit{service="console",app="cli_a"}': still(10_000),
  // No quota is known of this one.
  'larkline_feishu_month_calls{service="console",app="cli_b"}': still(20_000),
  'larkline_dead_letters{service="console"}': still(0),
  'process_start_time_seconds{service="agent-worker",instance="a:8000"}': still(1_000),
  'larkline_events_total{service="agent-worker",event="turn.healed"}': still(3),
  'nodejs_eventloop_lag_p99_seconds{service="agent-worker",instance="a:8000"}': still(0.02),
  'larkline_redis_memory_bytes{service="console",node="redis:6379"}': still(10),
  'larkline_redis_memory_limit_bytes{service="console",node="redis:6379"}': still(20),
  'larkline_redis_persists{service="console",node="redis:6379"}': still(1),
  'larkline_data_rounds_total{service="agent-worker",outcome="ok"}': growing(1),
};

/** What is different where one alert is needed. */
export const alertCases: Readonly<Record<string, SeriesByName>> = {
  LarklineStateUnknown: { 'larkline_state_up{service="console"}': still(0) },
  LarklineNoWorkers: { 'larkline_workers{service="console"}': still(0) },
  LarklineMessageWaits: {
    'larkline_message_oldest_seconds{service="console",state="queued"}': still(90),
  },
  LarklineTurnLong: {
    'larkline_message_oldest_seconds{service="console",state="running"}': still(2_000),
  },
  LarklineReplyNotDelivered: { 'larkline_outbox_oldest_seconds{service="console"}': still(400) },
  LarklineAcknowledgesSlowly: {
    'larkline_ack_seconds_bucket{service="ingress",channel="feishu",outcome="accepted",le="0.1"}':
      growing(30),
  },
  LarklineDeadLetters: { 'larkline_dead_letters{service="console"}': still(1) },
  LarklineJobsFailed: {
    'larkline_queue_jobs{service="console",queue="turns",state="failed"}': still(1),
  },
  LarklineNoRunner: {
    'larkline_queue_jobs{service="console",queue="tools-other.limited",state="waiting"}': still(1),
  },
  LarklineCallsWait: {
    'larkline_queue_oldest_seconds{service="console",queue="tools-default"}': still(120),
  },
  // A series that begins within the window.
  LarklineUnknownOutcomes: {
    'larkline_tool_calls_total{service="tool-runner",tool="deploy",outcome="unknown"}': `_x${minutes - 10} 1x10`,
  },
  LarklineToolFails: {
    'larkline_tool_calls_total{service="tool-runner",tool="search",outcome="error"}': growing(60),
  },
  LarklineSandboxOpen: {
    'larkline_sandbox_holds{service="tool-runner",instance="a:8000",tier="sbx"}': still(0),
  },
  LarklineApprovalsExpire: {
    'larkline_approvals_settled_total{service="agent-worker",kind="call",state="expired"}':
      growing(1),
  },
  LarklineModelFails: {
    'larkline_model_step_seconds_count{service="agent-worker",model="m",outcome="api_overloaded"}':
      growing(60),
  },
  LarklinePlatformFails: {
    'larkline_card_operations_total{service="agent-worker",operation="im.message.reply",result="unavailable"}':
      growing(60),
  },
  LarklineLimiterSaturated: {
    'larkline_limiter_wait_seconds_bucket{service="agent-worker",api="im",le="0.5"}': growing(30),
  },
  LarklineQuotaNearItsEnd: {
    'larkline_feishu_month_calls{service="console",app="cli_a"}': still(8_100),
  },
  LarklineBudgetNearItsEnd: {
    'larkline_budget_warnings_total{service="agent-worker",per="person",period="day"}': `_x${minutes - 10} 1x10`,
  },
  LarklineBudgetSpent: {
    'larkline_budget_refusals_total{service="agent-worker",per="person",period="day"}': `_x${minutes - 10} 1x10`,
  },
  LarklineRestarts: {
    'process_start_time_seconds{service="agent-worker",instance="a:8000"}': growing(30),
  },
  LarklineHeals: {
    'larkline_events_total{service="agent-worker",event="turn.healed"}': growing(2),
  },
  LarklineEventLoopBlocked: {
    'nodejs_eventloop_lag_p99_seconds{service="agent-worker",instance="a:8000"}': still(0.9),
  },
  LarklineRedisFillsUp: {
    'larkline_redis_memory_bytes{service="console",node="redis:6379"}': still(16),
  },
  LarklineRedisForgets: {
    'larkline_redis_persists{service="console",node="redis:6379"}': still(0),
  },
  LarklineDataKeeping: {
    'larkline_data_rounds_total{service="agent-worker",outcome="failed"}': growing(1),
  },
};

/** A file of `promtool test rules`: the deployment that is well, and one that is not for each alert. */
export function promtoolTests(rulesFile: string): object {
  const caseOf = (name: string, alerts: readonly string[], series: SeriesByName): object => ({
    name,
    interval: "1m",
    input_series: Object.entries({ ...wellSeries, ...series }).map(([one, values]) => ({
      series: one,
      values,
    })),
    promql_expr_test: [
      {
        expr: 'count by (alertname) (ALERTS{alertstate="firing"})',
        eval_time: `${minutes}m`,
        exp_samples: alerts.map((alertname) => ({
          labels: `{alertname="${alertname}"}`,
          value: 1,
        })),
      },
    ],
  });
  return {
    rule_files: [rulesFile],
    evaluation_interval: "1m",
    tests: [
      caseOf("all is well", [], {}),
      ...Object.entries(alertCases).map(([alert, series]) => caseOf(alert, [alert], series)),
    ],
  };
}
