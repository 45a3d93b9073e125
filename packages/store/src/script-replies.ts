// Written by `npm run script-types` from the headers of the scripts in the folders lua: what they reply.

export interface ScriptReplies {
  "append": { result: "accepted" | "asks" | "duplicate" | "full" | "recalled" | "foreign"; seq: number; wakeGen: number; ahead: number; eventSeq?: number; head?: string };
  "approved-rules": { rules: { approval: string; state: string; decisions: string; settledAtMs?: number }[] };
  "cancel": { accepted: boolean; wakeGen: number };
  "claim": undefined | { reply: "needs"; features: string[] } | { reply: "owner"; owner: string } | { reply: "alone" } | { reply: "held" } | { reply: "claimed"; epoch: string; turn?: string; head: string; failures: string; deaths: number; deathsAlone: number; contextVersion: string; from: number; context: string[]; control: string[]; settings?: string; summary?: string; othersWait: boolean; mayHaveWaited: boolean; totals?: string; brokenOff: boolean };
  "claim-schedules": { nowMs: number; claimed: { id: string; schedule: string; dueMs: number; generation: number; claimedMs: number }[] };
  "commit": { reply: "fenced" } | { reply: "idle"; deliver?: string; askerGen: number } | { reply: "next"; deliver?: string; head: string } | { reply: "requeue"; deliver?: string; wakeGen: number };
  "decide": undefined | { result: "settled" | "counted" | "repeated" | "closed"; approval: string; state: string; decisions: string; settledAtMs?: number; wakeGen: number };
  "deliver": { accepted: boolean; wakeGen: number; refusal?: "foreign" | "taken"; unread: number };
  "gate-state": { queued: number; running: number; suspended: number; oldestQueued: number; oldestRunning: number; outboxes: number; oldestReply: number; calls: number; approvals: number };
  "lease-approval-cards": undefined | { approval: string; state: string; decisions: string; settledAtMs?: number; cards?: string; attempts: number };
  "read-grant": { row: string[]; sealed?: string };
  "read-memories": { isOff: boolean; memories: { member: string; text: string; by: string; atMs: number; usedAtMs: number; uses: number }[] };
  "release": undefined | { result: "accepted" | "asks" | "duplicate" | "full" | "recalled" | "foreign"; seq: number; wakeGen: number; ahead: number; eventSeq?: number; head?: string };
  "release-uncounted": { uncounted: boolean; wakeGen: number };
  "reset": { reply: "changed" } | { reply: "reset"; hasEnded: boolean; wakeGen: number; askerGen: number };
  "save": { reply: "fenced" } | { reply: "suspended"; wakeGen?: number } | { reply: "running"; control: string[] };
  "settle": undefined | { result: "settled" | "counted" | "repeated" | "closed"; approval: string; state: string; decisions: string; settledAtMs?: number; wakeGen: number };
  "summary": { state: "idle" | "queued" | "running" | "suspended"; gen: number; epoch: string; waiting: number; messages: number; inContext: number; unsent: number; eventSeq: number; head: string; turn?: string; settings?: string; totals?: string; setAside: { entry?: string; turn?: string }[] };
  "take-answer": undefined | { result: "settled" | "counted" | "repeated" | "closed"; approval: string; state: string; decisions: string; settledAtMs?: number; wakeGen: number };
  "wake-due": { accepted: boolean; wakeGen: number };
  "finish-job": { reply: "refused"; code: number } | { reply: "finished" } | undefined | { reply: "taken"; fields: string[]; id: string; left: boolean; dueMs: number } | { reply: "none"; dueMs: number };
  "take-job": undefined | { reply: "taken"; fields: string[]; id: string; left: boolean; dueMs: number } | { reply: "none"; dueMs: number };
}
