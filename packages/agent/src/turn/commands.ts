import type { ReplyLanguage, InboundMessage, QueuedMessage } from "@larkline/protocol";
import type { PermissionRule } from "@larkline/protocol/approval";
import type { EngineEvent } from "@larkline/protocol/event";
import type { TurnState } from "@larkline/protocol/turn";
import { ruleText } from "../permissions/rules.ts";
import { en } from "../texts/en.ts";
import { inlineCode, noticeText, oneLine, textsOf } from "../texts/index.ts";
import { zh } from "../texts/zh.ts";
import type { CompactionReport } from "./context.ts";
import type { SessionChoices, Transition } from "./facts.ts";
import { slashCommandIn, languageOfMessage } from "./messages.ts";
import { endDone, after } from "./step.ts";
import { newTurn } from "./turn.ts";

/** The built-in commands, in the order of `/help`. */
export const commandNames = [
  "help",
  "new",
  "stop",
  "status",
  "model",
  "agent",
  "compact",
  "whoami",
  "usage",
  "memory",
  "schedules",
  "permissions",
] as const;

/** Commands of an agent's configuration, by name without slash: they become a prompt for the model. */
export type CustomCommands = Readonly<Record<string, { description: string; prompt: string }>>;

/** A message that is a command. */
export type ParsedCommand =
  | { kind: "builtin"; name: CommandName; argument: string }
  /** `prompt` is what the model gets in place of the message. */
  | { kind: "custom"; name: string; argument: string; prompt: string };

export type CommandName = (typeof commandNames)[number];

/** A slash, also a full-width one, directly followed by a name; then nothing, or a blank and an argument. */
const form = /^[/\uFF0F]([\p{L}\p{N}_-]{1,64})(?:\s+([^]*))?$/u;

/** The names that people may type, in any language. */
const byName: ReadonlyMap<string, CommandName> = new Map(
  commandNames.flatMap((name) =>
    [name, en.commands[name].typed, zh.commands[name].typed].map((typed) => [typed, name]),
  ),
);

/**
 * The command that a text is, by its English or Chinese name in any case. Undefined for everything
 * else: unknown words after a slash, such as paths, are for the model. Names of the system's own
 * commands cannot be taken by the configuration.
 */
export function parseCommand(text: string, custom: CustomCommands = {}): ParsedCommand | undefined {
  const found = form.exec(text.trim());
  if (found === null) return undefined;
  const [, word = "", rest = ""] = found;
  const wanted = word.toLowerCase();
  const argument = rest.trim();
  const builtin = byName.get(wanted);
  if (builtin !== undefined) return { kind: "builtin", name: builtin, argument };
  const own = customNamed(wanted, custom);
  if (own === undefined) return undefined;
  const [name, { prompt }] = own;
  return {
    kind: "custom",
    name,
    argument,
    prompt: argument === "" ? prompt : `${prompt}\n\n${argument}`,
  };
}

function customNamed(
  name: string,
  custom: CustomCommands,
): [string, { prompt: string }] | undefined {
  return Object.entries(custom).find(([known]) => known.toLowerCase() === name);
}

/** A command as people read it. */
interface DescribedCommand {
  /** Its name, with the slash. */
  name: string;
  description: string;
}

/** All commands, in the order of `/help`. */
export function describedCommands(
  language: ReplyLanguage,
  custom: CustomCommands = {},
): DescribedCommand[] {
  const { commands } = textsOf(language);
  const builtin = commandNames.map((name) => {
    const { typed, description } = commands[name];
    return { name: `/${typed}`, description };
  });
  return [...builtin, ...ownCommands(custom)];
}

/** A command of a bot's panel: the name that can be typed in every language, without the slash. */
export interface PanelCommand {
  name: string;
  description: Readonly<Record<ReplyLanguage, string>>;
}

/** All commands that a client may offer while a person types, in the order of `/help`. */
export function panelCommands(custom: CustomCommands = {}): PanelCommand[] {
  const builtin = commandNames.map((name) => ({
    name,
    description: { zh: zh.commands[name].description, en: en.commands[name].description },
  }));
  const own = ownCommands(custom).map(({ name, description }) => ({
    name: name.slice(1),
    description: { zh: description, en: description },
  }));
  return [...builtin, ...own];
}

/** What `/help` answers. */
export function helpText(language: ReplyLanguage, custom: CustomCommands = {}): string {
  const { commands, colon, helpTitle, helpLine } = textsOf(language);
  const rows = commandNames.map((name) =>
    helpLine(commands[name].typed, name, commands[name].description),
  );
  const own = ownCommands(custom).map(
    ({ name, description }) => `- \`${name}\`${colon}${description}`,
  );
  return [helpTitle, ...rows, ...own].join("\n");
}

/** The commands that a configuration adds. */
function ownCommands(custom: CustomCommands): DescribedCommand[] {
  return Object.entries(custom)
    .filter(([name]) => !byName.has(name.toLowerCase()))
    .map(([name, { description }]) => ({ name: `/${name}`, description }));
}

/** What a session command depends on. */
export interface CommandFacts extends ModelFacts {
  nowMs: number;
  /** Language of the reply; without it that of the person's message. */
  texts?: ReplyLanguage;
  /** The choices of the session so far. */
  choices?: SessionChoices;
  agents?: AgentFacts;
}

/** What `/agent` shows. */
export interface AgentFacts {
  /** The agent that answers. */
  now: string;
  /** The agents that the person may choose, `now` among them if they may use it. */
  known: readonly { name: string; description?: string | undefined }[];
}

/** What `/model` shows. */
export interface ModelFacts {
  /** The model that answers here now. */
  model: string;
  /** The model without a choice. */
  defaultModel: string;
  /** Models that may be chosen, each `<provider>/<id>`. */
  models: readonly string[];
}

/**
 * The turn of a message that is an order to the session; undefined when it is none. `/new`,
 * `/model` and `/agent` finish at once; `/compact` asks for the compaction (`next.do` is `compact`), after which
 * {@link commandDone} finishes it. Nothing of a command enters the history, so no model ever sees it.
 */
export function commandTurn(head: QueuedMessage, facts: CommandFacts): Transition | undefined {
  const { command } = head.message;
  if (command === undefined) return undefined;
  const turn = newTurn(head, facts.nowMs, speakerOf(head.message, facts));
  const reported = slashCommandIn(head.message);
  const records = { history: [], events: reported === undefined ? [] : [reported] };
  switch (command.name) {
    case "new":
      return after(records, newConversation(turn, facts));
    case "model":
      return after(records, chooseModel(turn, command.argument, facts));
    case "agent":
      return after(records, chooseAgent(turn, command.argument, facts));
    case "compact":
      return { turn, ...records, next: { do: "compact" } };
  }
}

/** The agent that answers, where that is not the agent that the message is for. */
function speakerOf(
  { agent = "default" }: InboundMessage,
  { agents }: CommandFacts,
): string | undefined {
  return agents === undefined || agents.now === agent ? undefined : agents.now;
}

/** The conversation begins anew, with the agent that its messages are for. */
function newConversation(turn: TurnState, facts: CommandFacts): Transition {
  const done = { ...finished(turn, notice("newConversation", turn, facts)), context: { keep: 0 } };
  const { agent, ...rest } = facts.choices ?? {};
  return agent === undefined ? done : { ...done, settings: rest };
}

function notice(
  name: "newConversation" | "nothingToCompact",
  turn: TurnState,
  facts: Pick<CommandFacts, "texts">,
): string {
  return noticeText(name, languageFor(turn, facts));
}

function languageFor(
  { message }: TurnState,
  { texts }: Pick<CommandFacts, "texts">,
): ReplyLanguage {
  return languageOfMessage(message, texts);
}

const defaultWords: ReadonlySet<string> = new Set(["default", "默认"]);

function chooseModel(turn: TurnState, argument: string, facts: CommandFacts): Transition {
  const language = languageFor(turn, facts);
  const wanted = argument.trim().toLowerCase();
  if (wanted === "") return finished(turn, modelText(language, facts));
  const { defaultModel } = facts;
  const found = defaultWords.has(wanted)
    ? defaultModel
    : modelNamed(wanted, [defaultModel, ...facts.models]);
  if (found === undefined) {
    return finished(turn, modelUnknownText(language, argument.trim(), facts));
  }
  const isDefault = found === defaultModel;
  const reply = noticeText(isDefault ? "modelReset" : "modelChosen", language, { model: found });
  const { model: _model, ...rest } = facts.choices ?? {};
  return { ...finished(turn, reply), settings: isDefault ? rest : { ...rest, model: found } };
}

/** Lists the agents that the person may use, or makes one of them answer. */
function chooseAgent(turn: TurnState, argument: string, facts: CommandFacts): Transition {
  const language = languageFor(turn, facts);
  const from = turn.message.agent ?? "default";
  const { now, known } = facts.agents ?? { now: from, known: [] };
  const word = argument.trim().toLowerCase();
  const list = agentsText(language, { now, known });
  if (word === "") return finished(turn, list);
  const wanted = defaultWords.has(word) ? from : word;
  if (!known.some(({ name }) => name === wanted)) {
    return finished(
      turn,
      `${noticeText("agentUnknown", language, { agent: argument.trim() })}\n\n${list}`,
    );
  }
  const { agent: _agent, ...rest } = facts.choices ?? {};
  const done = finished(turn, noticeText("agentChosen", language, { agent: wanted }));
  const changed: EngineEvent = {
    type: "agent_changed",
    from: now,
    to: wanted,
    reason: "person",
    callId: "",
  };
  return {
    ...done,
    events: wanted === now ? done.events : [changed, ...done.events],
    settings: wanted === from ? rest : { ...rest, agent: { from, to: wanted } },
  };
}

function agentsText(language: ReplyLanguage, { now, known }: AgentFacts): string {
  const { agents, colon } = textsOf(language);
  const lines = known.map(({ name, description = "" }) => {
    const said = description === "" ? "" : `${colon}${oneLine(description, 200)}`;
    return `- ${inlineCode(name)}${said}`;
  });
  const current = agents.current(inlineCode(now));
  return lines.length > 1 ? [current, "", agents.how, ...lines].join("\n") : current;
}

function finished(turn: TurnState, reply: string): Transition {
  const events: EngineEvent[] = [
    { type: "text_delta", text: reply },
    { type: "text", text: reply },
  ];
  return endDone(turn, { history: [], events, reply, reason: "", final: reply });
}

/** The model of that full name, or of that id when only one provider has it. */
function modelNamed(wanted: string, models: readonly string[]): string | undefined {
  const exact = models.find((model) => model.toLowerCase() === wanted);
  if (exact !== undefined) return exact;
  const byId = new Set(
    models.filter((model) => model.slice(model.indexOf("/") + 1).toLowerCase() === wanted),
  );
  return byId.size === 1 ? [...byId][0] : undefined;
}

/** What `/model` answers to a name that is not among the choices. */
function modelUnknownText(language: ReplyLanguage, wanted: string, facts: ModelFacts): string {
  return `${noticeText("modelUnknown", language, { model: wanted })}\n\n${modelText(language, facts)}`;
}

/** Ends the turn of `/compact`. */
export function commandDone(
  turn: TurnState,
  report: CompactionReport | undefined,
  facts: Pick<CommandFacts, "texts">,
): Transition {
  if (report === undefined) return finished(turn, notice("nothingToCompact", turn, facts));
  const values = { before: report.tokensBefore, after: report.tokensAfter };
  return finished(
    turn,
    noticeText(report.summarised ? "compacted" : "shortened", languageFor(turn, facts), values),
  );
}

/** What `/status` shows. */
export interface StatusFacts {
  nowMs: number;
  /** The model that answers here. */
  model: string;
  /** The agent that answers, where that is not the agent that messages here are for. */
  agent?: string;
  /** Messages that wait, the one being answered not included. */
  waiting: number;
  /** Messages of the conversation so far. */
  messages: number;
  /** What is being answered, if anything: since when, which model step, and the tools it waits for. */
  running?: { startedAtMs: number; step: number; tools: readonly string[] };
  /** Calls of this conversation that wait for people, also those of turns that wait while others are answered. */
  asked?: readonly AskedCall[];
}

/** A call that waits for people. */
export interface AskedCall {
  tool: string;
  /** The person of the turn and those who decide, by their names. */
  requester: string;
  deciders: string;
  sinceMs: number;
}

const maxAsked = 10;

/** What `/status` answers. */
export function statusText(language: ReplyLanguage, facts: StatusFacts): string {
  const { status, labelled, semicolon } = textsOf(language);
  const { nowMs, model, agent, waiting, messages, running, asked = [] } = facts;
  const shown = asked.slice(0, maxAsked).map((call) => askedText(call, nowMs, language));
  const calls = [...shown, ...(asked.length > maxAsked ? ["…"] : [])].join(semicolon);
  return [
    labelled(
      status.state,
      running === undefined ? status.idle : runningText(running, nowMs, language),
    ),
    ...(calls === "" ? [] : [labelled(status.waitingForDecision, calls)]),
    labelled(status.waitingMessages, String(waiting)),
    labelled(status.messages, String(messages)),
    ...(agent === undefined ? [] : [labelled(status.agent, inlineCode(agent))]),
    labelled(status.model, inlineCode(model)),
  ].join("\n");
}

function askedText(
  { tool, requester, deciders, sinceMs }: AskedCall,
  nowMs: number,
  language: ReplyLanguage,
): string {
  return textsOf(language).status.askedCall({
    tool: inlineCode(tool),
    requester: oneLine(requester, 64),
    deciders: oneLine(deciders, 200),
    since: sinceText(nowMs - sinceMs, language),
  });
}

function sinceText(ms: number, language: ReplyLanguage): string {
  const { status } = textsOf(language);
  const minutes = Math.max(0, Math.round(ms / 60_000));
  return minutes < 120 ? status.minutes(minutes) : status.hours(Math.round(minutes / 60));
}

type Running = NonNullable<StatusFacts["running"]>;

function runningText(
  { startedAtMs, step, tools }: Running,
  nowMs: number,
  language: ReplyLanguage,
): string {
  const seconds = Math.max(0, Math.round((nowMs - startedAtMs) / 1_000));
  const names = tools.map((name) => inlineCode(name));
  return textsOf(language).status.answering(seconds, step, names);
}

/** What `/whoami` answers: the sender as the bot sees them, and where they are. */
export function whoamiText(
  language: ReplyLanguage,
  message: Pick<InboundMessage, "sender" | "chatType" | "session" | "app" | "agent">,
): string {
  const { status, labelled } = textsOf(language);
  const { sender, session, app, agent } = message;
  return [
    ...(sender.name === undefined ? [] : [labelled(status.name, oneLine(sender.name, 64))]),
    labelled(status.userId, inlineCode(sender.id)),
    labelled(status.app, inlineCode(app)),
    labelled(status.conversation, inlineCode(session)),
    ...(agent === undefined ? [] : [labelled(status.agent, inlineCode(agent))]),
  ].join("\n");
}

/** What `/model` answers without an argument. */
export function modelText(
  language: ReplyLanguage,
  { model, defaultModel, models }: ModelFacts,
): string {
  const { current, isDefault, how } = textsOf(language).models;
  const choices = [...new Set([defaultModel, ...models])].map(
    (name) => `- ${inlineCode(name)}${name === defaultModel ? isDefault : ""}`,
  );
  const now = current(inlineCode(model));
  return choices.length > 1 ? [now, "", how, ...choices].join("\n") : now;
}

/** What `/permissions` is asked to do. */
export type PermissionsOrder =
  | { do: "list" }
  | { do: "revoke"; which: string }
  /** What the person lets the bot do as them. */
  | { do: "withdraw" };

/**
 * Reads the words after `/permissions`: none, `revoke` (`撤销`) and the number or the id of a rule, or `withdraw` (`收回`).
 */
export function permissionsOrder(argument: string): PermissionsOrder {
  if (/^(?:withdraw|收回)$/iu.test(argument.trim())) return { do: "withdraw" };
  const [, which = ""] = /^(?:revoke|撤销)\s*(.*)$/iu.exec(argument.trim()) ?? [];
  return which === "" ? { do: "list" } : { do: "revoke", which: which.trim() };
}

/** The rule that is meant by its number in the list, or by its id or the beginning of that, if only one begins so. */
export function ruleNamed(
  rules: readonly PermissionRule[],
  which: string,
): PermissionRule | undefined {
  if (/^\d{1,3}$/.test(which)) return rules[Number(which) - 1];
  const wanted = which.toLowerCase();
  const found = wanted.length < 4 ? [] : rules.filter(({ id }) => id.startsWith(wanted));
  return found.length === 1 ? found[0] : undefined;
}

const maxShown = 50;

/** What `/permissions` answers: the rules of the chat that hold now, in the order given. */
export function permissionsText(rules: readonly PermissionRule[], language: ReplyLanguage): string {
  const { none, title, hint } = textsOf(language).permissions;
  if (rules.length === 0) return none;
  const lines = rules.slice(0, maxShown).map((rule, index) => lineOf(rule, index, language));
  const more = rules.length > maxShown ? [`… ${rules.length - maxShown}`] : [];
  return [title, ...lines, ...more, "", hint].join("\n");
}

const shownIdChars = 8;

function lineOf(rule: PermissionRule, index: number, language: ReplyLanguage): string {
  const { author, expiresAtMs, id } = rule;
  const facts = textsOf(language).permissions.rule({
    whom: whomOf(rule, language),
    author: oneLine(author.name ?? author.id, 64),
    until: dayOf(expiresAtMs),
  });
  return `${index + 1}. ${inlineCode(ruleText(rule))} (${id.slice(0, shownIdChars)}) ${facts}`;
}

function whomOf({ author, person }: PermissionRule, language: ReplyLanguage): string {
  const { forEverybody, forOne } = textsOf(language).permissions;
  if (person === undefined) return forEverybody;
  return forOne(oneLine(person === author.id ? (author.name ?? person) : person, 64));
}

/** The day, in UTC. */
function dayOf(atMs: number): string {
  return new Date(atMs).toISOString().slice(0, 10);
}
