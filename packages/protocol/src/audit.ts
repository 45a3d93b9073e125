import { Type, type Static } from "./type.ts";

/**
 * What happened, for the record. Calls: `call_opened` before it can run (always), `call_started`
 * before it acts (unless `pure`), `call_ended`. Approvals: requested, decided (each person's word),
 * settled. Rules: added, revoked. `content_shown`: an operator opened content that is hidden by default.
 * `turn_cancelled`: an operator stopped it. `session_reset`: a person or an operator ended its turn and began a new conversation; `inbox_dropped`: its waiting messages
 * were taken out. `letter_retried`, `letter_discarded`: of something that was given up. `person_exported`,
 * `person_deleted`: what is stored of a person was handed out or taken away. `agent_paused`, `agent_resumed`,
 * `tool_paused`, `tool_resumed`, `schedule_paused`, `schedule_resumed`, `schedule_deleted`: an operator wanted it so.
 * `agent_changed`: an operator gave it another version. `provider_changed`, `provider_removed`: of a server of models. `grant_given`, `grant_refreshed`, `grant_ended`: what a person lets
 * a bot do as them, with the reason of the end; its use is in `call_started`. Never holds arguments, results or secrets.
 */
export const auditKinds = [
  "call_opened",
  "call_started",
  "call_ended",
  "approval_requested",
  "approval_decided",
  "approval_settled",
  "rule_added",
  "rule_revoked",
  "content_shown",
  "turn_cancelled",
  "session_reset",
  "inbox_dropped",
  "letter_retried",
  "letter_discarded",
  "person_exported",
  "person_deleted",
  "agent_paused",
  "agent_resumed",
  "tool_paused",
  "tool_resumed",
  "agent_changed",
  "provider_changed",
  "provider_removed",
  "schedule_paused",
  "schedule_resumed",
  "schedule_deleted",
  "grant_given",
  "grant_refreshed",
  "grant_ended",
] as const;

export const AuditRecord = Type.Object({
  kind: Type.Enum([...auditKinds]),
  /** Epoch ms, of the store's clock. */
  atMs: Type.Integer(),
  app: Type.Optional(Type.String()),
  tenant: Type.Optional(Type.String()),
  session: Type.Optional(Type.String()),
  turnId: Type.Optional(Type.String()),
  callId: Type.Optional(Type.String()),
  tool: Type.Optional(Type.String()),
  agent: Type.Optional(Type.String()),
  /** Whom it is done for, or who decided. */
  userId: Type.Optional(Type.String()),
  chatId: Type.Optional(Type.String()),
  argumentsHash: Type.Optional(Type.String()),
  /** As whom a call may act: `person`, `bot`, `either`, or `none` where its tool wants a person that is not known; absent: it gets no token. */
  as: Type.Optional(Type.String()),
  /** Permissions of the person that it needs. */
  scopes: Type.Optional(Type.Array(Type.String(), { maxItems: 20 })),
  approvalId: Type.Optional(Type.String()),
  ruleId: Type.Optional(Type.String()),
  scheduleId: Type.Optional(Type.String()),
  /** A server of models. */
  provider: Type.Optional(Type.String()),
  runner: Type.Optional(Type.String()),
  /** Which letter, or which failed job. */
  letterId: Type.Optional(Type.String()),
  /**
   * `ok`, `error` or `unknown` of a call, `cancelled` when its turn ended before it was started; the
   * decision or state of an approval.
   */
  result: Type.Optional(Type.String()),
  /** Versions of an agent; 0: the file. */
  from: Type.Optional(Type.Integer()),
  to: Type.Optional(Type.Integer()),
});
export type AuditRecord = Static<typeof AuditRecord>;
