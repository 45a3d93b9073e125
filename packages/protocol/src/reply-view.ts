import { Type, type Static } from "./type.ts";
import { Chart } from "./chart.ts";
import { SessionKey } from "./session.ts";
import { LocalText, replyLanguages } from "./local-text.ts";

/** What people read of a call in place of its tool's name. */
export const CallWords = Type.Object({
  /** The tool, as its author calls it. */
  title: Type.Optional(LocalText),
  /** What this call does, in a sentence with some of its arguments. Neither escaped nor in one line. */
  summary: Type.Optional(LocalText),
});
export type CallWords = Static<typeof CallWords>;

/** A tool call as the person sees it. */
export const ShownTool = Type.Object({
  id: Type.String(),
  name: Type.String(),
  words: Type.Optional(CallWords),
  /** For a call of a helper: the agent or team that works on it, the first words of its task, and what people are asked. */
  helper: Type.Optional(
    Type.Object({
      agent: LocalText,
      task: Type.String(),
      wait: Type.Optional(
        Type.Object({ about: Type.Enum(["approval", "question"]), tool: Type.String() }),
      ),
    }),
  ),
  /** `waiting`: for a person; `stopped`: broken off by a cancel, it may have taken effect. */
  state: Type.Enum(["running", "waiting", "done", "failed", "stopped"]),
  /** While it waits: the person of a group whose permission to act as them it needs, as they are called. */
  permissionOf: Type.Optional(Type.String()),
  /** While it runs: its runner has no living instance, so the call waits for one. */
  isAway: Type.Optional(Type.Boolean()),
  /** Epoch ms. */
  startedAtMs: Type.Integer(),
  /** How long it took, ms; of a call that runs, how long so far, where that is shown. */
  elapsedMs: Type.Optional(Type.Integer()),
  /** How much of that it waited for its runner, ms. */
  queuedMs: Type.Optional(Type.Integer({ minimum: 0 })),
  /** The beginning of what it answered, or of its error. */
  output: Type.Optional(Type.String()),
  /** What it has returned to be drawn. */
  chart: Type.Optional(Chart),
  /** What it has reported of itself while it runs: how much is done, 0 to 1, and what it does now. */
  progress: Type.Optional(Type.Object({ fraction: Type.Number(), detail: Type.String() })),
});
export type ShownTool = Static<typeof ShownTool>;

/** Steps and how far they are, above the answer. */
export const ProgressPanel = Type.Object({
  kind: Type.Literal("progress"),
  /** Of the ability that shows it; letters alone. */
  name: Type.String(),
  title: LocalText,
  items: Type.Array(
    Type.Object({
      text: Type.String({ minLength: 1 }),
      state: Type.Enum(["pending", "in_progress", "done"]),
    }),
    { minItems: 1 },
  ),
});
export type ProgressPanel = Static<typeof ProgressPanel>;

const PanelButton = Type.Object({
  text: LocalText,
  /** Comes back to ingress with the click. */
  value: Type.Record(Type.String(), Type.String()),
});

/** Things that were made, below the finished answer, each with what may be done about it. */
export const ListPanel = Type.Object({
  kind: Type.Literal("list"),
  /** Of the ability that shows it; letters alone. */
  name: Type.String(),
  title: LocalText,
  items: Type.Array(
    Type.Object({
      text: Type.String({ minLength: 1 }),
      buttons: Type.Optional(Type.Array(PanelButton, { minItems: 1, maxItems: 4 })),
    }),
    { minItems: 1 },
  ),
});
export type ListPanel = Static<typeof ListPanel>;

/** A part of the card that an ability shows, drawn by its kind. */
export const Panel = Type.Union([ProgressPanel, ListPanel]);
export type Panel = Static<typeof Panel>;

/** What a member of a team has said, as the person sees it. */
export const ShownContribution = Type.Object({
  /** Its name. */
  agent: Type.String(),
  /** Its beginning. */
  text: Type.String(),
});
export type ShownContribution = Static<typeof ShownContribution>;

/** What stands below an answer; whatever is switched off or not known yet is absent. */
export const ReplyFooter = Type.Object({
  /** The agent that answers, where that is not the agent that the message is for. */
  agent: Type.Optional(LocalText),
  model: Type.Optional(Type.String()),
  inputTokens: Type.Optional(Type.Integer()),
  outputTokens: Type.Optional(Type.Integer()),
  costUsd: Type.Optional(Type.Number()),
  /** In place of US dollars: the code of another currency, and how much of it a dollar is. */
  currency: Type.Optional(Type.Object({ code: Type.String(), perUsd: Type.Number() })),
  seconds: Type.Optional(Type.Number()),
  traceId: Type.Optional(Type.String()),
  /** Address of the console, which explains the trace. */
  consoleUrl: Type.Optional(Type.String()),
  /** What the deployment says below every answer. */
  line: Type.Optional(LocalText),
  /** What the person should know beside it, such as how much of their budget is spent. */
  note: Type.Optional(Type.String()),
});
export type ReplyFooter = Static<typeof ReplyFooter>;

/** What the person may ask for below an answer: another try of what has failed, or more of what a limit has ended. */
export const ReplyAgain = Type.Object({
  wish: Type.Enum(["retry", "continue"]),
  session: SessionKey,
  turnId: Type.String(),
  /** Who asked: no other person may. */
  person: Type.String(),
  /** The message that was answered. */
  messageId: Type.String(),
  chatId: Type.String(),
  chatType: Type.Enum(["p2p", "group"]),
  inThread: Type.Boolean(),
});
export type ReplyAgain = Static<typeof ReplyAgain>;

/** A run whose answer people may rate, as a rating names it: ids and names, never content. */
export const RatedRun = Type.Object({
  turn: Type.String({ minLength: 1, maxLength: 300 }),
  agent: Type.String({ maxLength: 100 }),
  /** Id of the model that answered. */
  model: Type.String({ maxLength: 200 }),
  /** Tools that it has called, as far as its card can show them. */
  tools: Type.Array(Type.String({ maxLength: 128 }), { maxItems: 8 }),
});
export type RatedRun = Static<typeof RatedRun>;

/**
 * Everything a person sees of a reply, at one moment. Cards are pure functions of it; the answer's
 * text only ever grows while `state` is `running`.
 */
export const ReplyView = Type.Object({
  v: Type.Literal(1),
  language: Type.Enum([...replyLanguages]),
  /** Several people see it: its texts are sent in both languages, and each sees that of their client. */
  bilingual: Type.Optional(Type.Boolean()),
  /** `interrupted`: the worker that wrote it died and no other worker continued. */
  state: Type.Enum(["running", "answered", "stopped", "failed", "interrupted"]),
  /** What the model thought so far, or its end; empty when it did not or when it is not shown. */
  thinking: Type.String(),
  /** How long that took, ms. */
  thinkingMs: Type.Optional(Type.Integer({ minimum: 0 })),
  tools: Type.Array(ShownTool),
  /** Earlier calls that are left out of `tools`. */
  earlierTools: Type.Integer({ minimum: 0 }),
  /** Markdown as the model wrote it, unfiltered; the renderer must make it safe. */
  answer: Type.String(),
  /** Hosts whose pictures the answer may show; absent: none. */
  imageHosts: Type.Optional(Type.Array(Type.String({ maxLength: 300 }), { maxItems: 100 })),
  footer: ReplyFooter,
  /** For a team: the contributions before the one that is the answer. */
  contributions: Type.Optional(
    Type.Object({
      /** The latest. */
      list: Type.Array(Type.Object({ agent: LocalText, text: Type.String() })),
      earlier: Type.Integer({ minimum: 0 }),
      /** Whose words the answer has; absent while the next one is chosen, and where the answer has those of all. */
      speaker: Type.Optional(LocalText),
    }),
  ),
  /** What the agent's abilities show. */
  panels: Type.Optional(Type.Array(Panel)),
  /** Cards that it may take at most; the rest of the answer is a file. Absent: as many as it needs. */
  maxCards: Type.Optional(Type.Integer({ minimum: 1 })),
  /** Absent: no button. */
  again: Type.Optional(ReplyAgain),
  /** What people rate; absent: they are not asked. */
  rated: Type.Optional(RatedRun),
  /** Which turn the stop button stops; absent: no button. */
  stop: Type.Optional(Type.Object({ session: SessionKey, turnId: Type.String() })),
});
export type ReplyView = Static<typeof ReplyView>;
