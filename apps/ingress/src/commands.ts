import { noticeText, usageText } from "@larkline/agent";
import { budgetUse, createBudgetBook, spenderOf } from "@larkline/agent/budgets";
import {
  commandNames,
  describedCommands,
  helpText,
  parseCommand,
  permissionsOrder,
  permissionsText,
  ruleNamed,
  statusText,
  whoamiText,
  type AskedCall,
  type CommandName,
  type CustomCommands,
} from "@larkline/agent/commands";
import { aboutOf, memoriesText, memoryOrder } from "@larkline/agent/memory";
import { decidersText, hasRole, matchesName, ruleText } from "@larkline/agent/permissions";
import { agentOfMessage, budgetsWith, nearestName } from "@larkline/process/config";
import {
  jsonParserOf,
  memoryOwnersOf,
  replyLanguages,
  textIn,
  type InboundMessage,
  type ReplyLanguage,
  type SessionCommand,
} from "@larkline/protocol";
import type { Deciders, PermissionRule } from "@larkline/protocol/approval";
import type { CallWords } from "@larkline/protocol/reply-view";
import { Type, type Static } from "@larkline/protocol/type";
import { showGrant, withdrawGrant } from "./grants.ts";
import type { Channel, Services } from "./services.ts";
import { obeySchedules, type Shown } from "./schedules.ts";
import { stopTurn, type Ordered } from "./sessions.ts";

// Commands such as `/status`, written in a chat or sent over HTTP.

/** Commands that are carried out at once, even while the session is busy. */
type ImmediateCommand = Exclude<CommandName, SessionCommand["name"]>;

/**
 * A command that is carried out at once, and its argument. `unknown`: there is no command of the name in `argument`.
 */
export interface Order {
  name: ImmediateCommand | "unknown";
  argument: string;
}

/** How a message is handled. */
export type ReadCommand =
  /**
   * A message for the session, possibly with other words than the person wrote, or an order that waits in turn.
   */
  { for: "session"; message: InboundMessage } | ({ for: "now" } & Order);

const maxArgumentLength = 1_000;

/**
 * Reads a message as a command. Those that change the conversation wait for their turn in it like any message; a
 * command of the configuration becomes its prompt.
 */
export function readCommand(
  message: InboundMessage,
  text: string,
  custom: CustomCommands,
): ReadCommand {
  const parsed = parseCommand(text, custom);
  if (parsed === undefined) return { for: "session", message };
  if (parsed.kind === "custom") {
    return {
      for: "session",
      message: { ...message, parts: [{ type: "text", text: parsed.prompt }] },
    };
  }
  const { name, argument } = parsed;
  if (!isForSession(name)) return { for: "now", name, argument };
  const needs =
    name === "agent" ? { needs: [...new Set([...(message.needs ?? []), "hand-over"])] } : {};
  const command = { name, argument: argument.slice(0, maxArgumentLength) };
  return { for: "session", message: { ...message, ...needs, command } };
}

const slashWord = /^[/\uFF0F]([\p{L}\p{N}_-]{1,64})(\s[^]*)?$/u;

/**
 * What a person has typed as a command that does not exist: a model would only guess. Words behind it make it one only
 * where a command has nearly that name; paths and sentences such as "/tmp is full" are for the model.
 */
export function unknownCommand(text: string, custom: CustomCommands): Order | undefined {
  const [, word = "", rest = ""] = slashWord.exec(text.trim()) ?? [];
  if (word === "" || parseCommand(text, custom) !== undefined) return undefined;
  const isOne = rest.trim() === "" || nearestCommands(word, custom).length > 0;
  return isOne ? { name: "unknown", argument: word } : undefined;
}

const maxNearest = 3;

/** The commands that a wrong name may have meant: those that begin with it, and the one that is nearest. */
function nearestCommands(word: string, custom: CustomCommands): string[] {
  const wanted = word.toLowerCase();
  const all = replyLanguages.flatMap((language) => describedCommands(language, custom));
  const names = [...new Set([...commandNames, ...all.map(({ name }) => name.slice(1))])];
  const begun = names.filter((name) => wanted.length > 1 && name.toLowerCase().startsWith(wanted));
  const near = nearestName(wanted, names);
  return [...new Set([...begun, ...(near === undefined ? [] : [near])])].slice(0, maxNearest);
}

function unknownText(word: string, language: ReplyLanguage, custom: CustomCommands): string {
  const near = nearestCommands(word, custom).map((name) => `/${name}`);
  if (near.length === 0) return noticeText("commandUnknown", language, { name: word });
  return noticeText("commandNear", language, {
    name: word,
    near: near.join(language === "zh" ? "、" : ", "),
  });
}

function isForSession(name: CommandName): name is SessionCommand["name"] {
  return name === "new" || name === "compact" || name === "model" || name === "agent";
}

/** Carries out a command; resolves to its answer, or undefined when the answer appears elsewhere. */
export async function obeyCommand(
  services: Services,
  channel: Channel,
  { name, argument }: Order,
  ordered: Ordered,
): Promise<string | Shown | undefined> {
  const { message, language } = ordered;
  switch (name) {
    case "unknown":
      return unknownText(argument, language, agentOfMessage(services.settings, message).commands);
    case "help":
      return helpText(language, agentOfMessage(services.settings, message).commands);
    case "status":
      return await status(services, channel, ordered);
    case "whoami":
      return whoamiText(language, message);
    case "usage":
      return await usage(services, ordered);
    case "memory":
      return await memory(services, channel, argument, ordered);
    case "schedules":
      return await obeySchedules(services, channel, argument, ordered);
    case "permissions": {
      const order = permissionsOrder(argument);
      if (order.do === "withdraw") return await withdrawGrant(services, channel, ordered);
      return order.do === "list"
        ? await listPermissions(services, channel, ordered)
        : await revokeRule(services, channel, order.which, ordered);
    }
    case "stop":
      return await stop(services, channel, ordered);
  }
}

async function status(
  services: Services,
  channel: Channel,
  { message, language }: Ordered,
): Promise<string> {
  const { session } = message;
  const { state, head, turn, waiting, setAside, inContext, settings } =
    await services.store.summary(session);
  const busy = state !== "idle" && head !== undefined;
  const tools = (turn?.calls ?? []).flatMap((call) =>
    call.state === "done" ? [] : [toolOf(call.name, call, language)],
  );
  const running = {
    startedAtMs: turn?.startedAtMs ?? head?.message.createdAtMs ?? 0,
    step: (turn?.steps ?? 0) + 1,
    tools,
  };
  const agent = agentOfMessage(services.settings, message);
  const active =
    turn?.agent ?? (settings.agent?.from === agent.name ? settings.agent.to : undefined);
  return statusText(language, {
    nowMs: services.clock.now(),
    model: settings.model ?? agent.model ?? services.config.model ?? "default",
    ...(active === undefined ? {} : { agent: active }),
    waiting: Math.max(0, waiting - setAside.length - (busy ? 1 : 0)),
    messages: inContext,
    asked: await askedIn(services, channel, session, language),
    ...(busy ? { running } : {}),
  });
}

/** A tool by its title, else by its name. */
function toolOf(
  name: string,
  { words }: { words?: CallWords | undefined },
  language: ReplyLanguage,
): string {
  return words?.title === undefined ? name : textIn(words.title, language);
}

/** The calls of a session that wait for people, those of turns set aside, too. */
async function askedIn(
  { approvals }: Services,
  channel: Channel,
  session: string,
  language: ReplyLanguage,
): Promise<AskedCall[]> {
  const pending = (await approvals.pending(session)).filter(
    ({ approval }) => approval.kind !== "rule",
  );
  const people = pending.flatMap(({ approval: { requester, deciders } }) => [
    requester.id,
    ...deciders.people,
  ]);
  const names =
    pending.length === 0 ? new Map<string, string>() : await channel.namesOf([...new Set(people)]);
  return pending.map(({ approval: { tool, words, requester, deciders, createdAtMs: sinceMs } }) => {
    const asker = requester.name ?? names.get(requester.id) ?? requester.id;
    const nameOf = (openId: string): string | undefined => names.get(openId);
    return {
      tool: toolOf(tool, { words }, language),
      requester: asker,
      deciders: decidersText(deciders, { language, requester: asker, nameOf }),
      sinceMs,
    };
  });
}

async function usage(services: Services, { message, language }: Ordered): Promise<string> {
  const { budgets, clock, settings, agentVersions } = services;
  const budgetBook = settings.changesAgents
    ? createBudgetBook(budgetsWith(settings, await agentVersions.list()))
    : services.budgetBook;
  const accounts = budgetBook.accountsOf(
    spenderOf(message, agentOfMessage(settings, message).name),
    clock.now(),
  );
  const spent = accounts.length === 0 ? [] : await budgets.spent(accounts);
  const uses = accounts.map((account, at) =>
    budgetUse(account, spent[at] ?? { tokens: 0, usd: 0 }),
  );
  return usageText(uses, language, budgetBook);
}

async function stop(
  services: Services,
  channel: Channel,
  { message, language }: Ordered,
): Promise<string | undefined> {
  const { id: orderId, session, sender } = message;
  const stopped = await stopTurn(services, channel, {
    session,
    by: sender.id,
    orderId,
    reason: "stopped",
  });
  switch (stopped.result) {
    case "stopping":
      return undefined;
    case "nothing":
      return noticeText("nothingToStop", language);
    case "not_allowed":
      return mayNotStopText(stopped.message, language);
  }
}

/** The workers look up the names of people; until then the other person stays nameless. */
const namelessAsker = { zh: "发起人", en: "the person who asked" } as const satisfies Record<
  ReplyLanguage,
  string
>;

/** The refusal for a person who may not stop the turn that answers this message. */
export function mayNotStopText({ sender }: InboundMessage, language: ReplyLanguage): string {
  return noticeText("notAllowedToStop", language, { who: sender.name ?? namelessAsker[language] });
}

/** What is remembered of the person, or of the chat, and taking it away. */
async function memory(
  services: Services,
  { app }: Channel,
  argument: string,
  { message, language }: Ordered,
): Promise<string> {
  const { lookups, memories } = services;
  const { person } = memoryOwnersOf(message);
  const order = memoryOrder(argument);
  if (order.do === "off") {
    return noticeText("memoryOff", language, { count: await memories.switch(person, "off") });
  }
  if (order.do === "on") {
    await memories.switch(person, "on");
    return noticeText("memoryOn", language);
  }
  const { listed, off } = await listedFor(services, message);
  if (order.do !== "forget") {
    return memoriesText(listed, { language, isGroup: message.chatType === "group", off });
  }
  // Numbers change when memories are removed, so a redelivered order must not remove another one.
  const key = `forget:${app}:${message.id}`;
  if ((await lookups.get(key)) !== undefined) return noticeText("memoryForgotten", language);
  const meant = listed[order.which - 1];
  if (meant === undefined) return noticeText("memoryUnknown", language);
  await lookups.set(key, meant.id, aimKeptMs);
  await memories.forget(meant.owner, [meant.id]);
  return noticeText("memoryForgotten", language);
}

/** The memories of the person where no other person reads along, then those of the chat. */
async function listedFor({ memories }: Services, message: InboundMessage) {
  const { person, chat } = memoryOwnersOf(message);
  const [own, ours] = await Promise.all([memories.list(person), memories.list(chat)]);
  const shown =
    message.chatType === "group" ? [] : own.memories.map((one) => ({ ...one, owner: person }));
  const all = [...shown, ...ours.memories.map((one) => ({ ...one, owner: chat }))];
  return { off: own.off, listed: all.map((one) => ({ ...one, about: aboutOf(one.owner.kind) })) };
}

/** The rules of the chat, and what the person lets the bot do as them: that goes to them alone. */
async function listPermissions(
  services: Services,
  channel: Channel,
  ordered: Ordered,
): Promise<string | undefined> {
  const { message, language } = ordered;
  const hasGranted = await showGrant(services, channel, ordered);
  const held = await services.rules.inForce(channel.app, chatOfRules(message));
  const names = await channel.namesOf(held.map(({ author }) => author.id));
  const named = held.map((rule) => ({
    ...rule,
    author: { name: names.get(rule.author.id) ?? rule.author.id, ...rule.author },
  }));
  const rules = permissionsText(named, language);
  if (!hasGranted) return rules;
  if (message.chatType === "group") return `${rules}\n\n${noticeText("grantAlone", language)}`;
  return held.length === 0 ? undefined : rules;
}

/** Rules are of chats: those of the chat in which the message was written. A session of the API is one of its own. */
function chatOfRules({ reply, session }: InboundMessage): string {
  return reply.channel === "none" ? session : reply.chatId;
}

async function revokeRule(
  services: Services,
  channel: Channel,
  which: string,
  { message, language }: Ordered,
): Promise<string> {
  const { rules } = services;
  const held = await rules.inForce(channel.app, chatOfRules(message));
  const { id, text } = await aimOf(services, channel, { which, held, messageId: message.id });
  if (id === undefined) return noticeText("ruleUnknown", language, { rule: text });
  const rule = held.find((one) => one.id === id);
  if (rule !== undefined) {
    const revokers = revokersOf(services, rule);
    if (!(await mayRevoke(services, channel, revokers, message.sender.id))) {
      const names = await channel.namesOf(revokers.people);
      const who = decidersText(revokers, { language, nameOf: (openId) => names.get(openId) });
      return noticeText("notAllowedToRevoke", language, { who });
    }
    await rules.revoke(channel.app, id, message.sender);
  }
  // Also when the rule is gone by now, because of an earlier delivery or another person.
  return noticeText("ruleRevoked", language, { rule: text });
}

/** The rule that an order to revoke is about; without `id` there is none. */
const Aim = Type.Object({ id: Type.Optional(Type.String()), text: Type.String() });
type Aim = Static<typeof Aim>;

const parseAim = jsonParserOf(Aim);

/** Longer than messages are redelivered ("Event subscription overview": 7 hours). */
const aimKeptMs = 24 * 3_600_000;

/** Characters of a rule that are remembered: texts about a rule are cut anyway. */
const maxShown = 200;

/** Numbers change when rules are removed, so a redelivered order keeps the rule that it was given for. */
async function aimOf(
  { lookups }: Services,
  { app }: Channel,
  { which, held, messageId }: { which: string; held: PermissionRule[]; messageId: string },
): Promise<Aim> {
  const key = `revoke:${app}:${messageId}`;
  const before = parseAim((await lookups.get(key)) ?? "");
  if (before.ok) return before.value;
  const rule = ruleNamed(held, which);
  const text = (rule === undefined ? which : ruleText(rule)).slice(0, maxShown);
  const aim: Aim = rule === undefined ? { text } : { id: rule.id, text };
  await lookups.set(key, JSON.stringify(aim), aimKeptMs);
  return aim;
}

/** The person who left the rule, the person it is for, and all who decide about such calls. */
function revokersOf({ settings }: Services, { tool, author, person }: PermissionRule): Deciders {
  const policy = settings.permissions;
  const entries = policy.entries.filter(
    (entry) => entry.do === "ask" && entry.tools.some((pattern) => matchesName(pattern, tool)),
  );
  const approvers = [policy.approvers, ...entries.map((entry) => entry.approvers)];
  const people = [
    author.id,
    ...(person === undefined ? [] : [person]),
    ...approvers.flatMap((one) => one.people),
  ];
  const roles = [...new Set(approvers.flatMap((one) => one.roles))];
  return { requester: false, people: [...new Set(people)], roles, fourEyes: false, count: 1 };
}

async function mayRevoke(
  { settings }: Services,
  channel: Channel,
  { people, roles }: Deciders,
  openId: string,
): Promise<boolean> {
  const known = settings.permissions.roles;
  if (people.includes(openId) || hasRole({ id: openId, groups: [] }, roles, known)) return true;
  const groups = roles.flatMap(
    (name) => (Object.hasOwn(known, name) ? known[name]?.groups : []) ?? [],
  );
  if (groups.length === 0) return false;
  return hasRole({ id: openId, groups: await channel.groupsOf(openId) }, roles, known);
}
