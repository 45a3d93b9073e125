import {
  helpText,
  noticeText,
  parseCommand,
  statusText,
  usageText,
  whoamiText,
  type AskedCall,
  type CommandName,
  type CustomCommands,
} from "@larkline/agent";
import { budgetUse, spenderOf, type BudgetBook } from "@larkline/agent/budgets";
import { decidersText } from "@larkline/agent/permissions";
import { sharedNow, type InboundMessage, type ReplyLanguage, type SessionCommand } from "@larkline/protocol";
import type { ApprovalStore, BudgetStore, SessionStore } from "@larkline/store";
import type { BotAgents } from "./bot-agents.ts";
import type { PeopleNames } from "./people-names.ts";
import type { RuleDesk } from "./rule-desk.ts";
import type { TurnStopper } from "./turn-stopper.ts";

/** Commands that are obeyed at once, whatever the session is doing. */
export type ImmediateCommand = Exclude<CommandName, SessionCommand["name"]>;

/** A command for the desk, and the words behind it. */
export interface Order {
  name: ImmediateCommand;
  argument: string;
}

/** What a message turns out to be. */
export type ReadCommand =
  /** For the session: a message, possibly with other words than the person wrote, or an order to wait in turn. */
  { for: "session"; message: InboundMessage } | ({ for: "desk" } & Order);

const maxArgumentLength = 1_000;

function isForSession(name: CommandName): name is SessionCommand["name"] {
  return name === "new" || name === "compact" || name === "model";
}

/**
 * Reads a message as a command. Those that change the conversation wait for their turn in it like
 * any message; a command of the configuration becomes its prompt.
 */
export function readCommand(message: InboundMessage, text: string, custom: CustomCommands): ReadCommand {
  const parsed = parseCommand(text, custom);
  if (parsed === undefined) return { for: "session", message };
  if (parsed.kind === "custom") {
    return { for: "session", message: { ...message, parts: [{ type: "text", text: parsed.prompt }] } };
  }
  const { name, argument } = parsed;
  if (!isForSession(name)) return { for: "desk", name, argument };
  return { for: "session", message: { ...message, command: { name, argument: argument.slice(0, maxArgumentLength) } } };
}

export interface CommandDeskDeps {
  agents: Pick<BotAgents, "of">;
  /** Model of the deployment, for `/status`; undefined when this process does not know it. */
  model: string | undefined;
  store: Pick<SessionStore, "summary">;
  approvals: Pick<ApprovalStore, "pending">;
  namesOf: PeopleNames;
  stop: TurnStopper;
  rules: RuleDesk;
  budgets: { book: BudgetBook; store: Pick<BudgetStore, "spent"> };
}

/** Obeys a command; resolves to its answer, or undefined when that appears elsewhere. */
export type CommandDesk = (
  order: Order,
  message: InboundMessage,
  language: ReplyLanguage,
) => Promise<string | undefined>;

/** Names of people are looked up by the workers; without one the other person stays nameless. */
const somebody = { zh: "发起人", en: "the person who asked" } as const satisfies Record<ReplyLanguage, string>;

/** What somebody is told who may not stop a run. */
export function notAllowedText({ sender }: InboundMessage, language: ReplyLanguage): string {
  return noticeText("notAllowedToStop", language, { who: sender.name ?? somebody[language] });
}

/** The calls of a session that wait for people, of turns set aside, too. */
async function askedIn(
  { approvals, namesOf }: Pick<CommandDeskDeps, "approvals" | "namesOf">,
  session: string,
  language: ReplyLanguage,
): Promise<AskedCall[]> {
  const pending = (await approvals.pending(session)).filter(({ approval }) => approval.kind !== "rule");
  const people = pending.flatMap(({ approval: { requester, deciders } }) => [requester.id, ...deciders.people]);
  const names = pending.length === 0 ? new Map<string, string>() : await namesOf([...new Set(people)]);
  return pending.map(({ approval: { tool, requester, deciders, createdAtMs: sinceMs } }) => {
    const asker = requester.name ?? names.get(requester.id) ?? requester.id;
    const nameOf = (openId: string): string | undefined => names.get(openId);
    return {
      tool,
      requester: asker,
      deciders: decidersText(deciders, { language, requester: asker, nameOf }),
      sinceMs,
    };
  });
}

export function createCommandDesk(deps: CommandDeskDeps): CommandDesk {
  const { agents, model, store, stop, rules, budgets } = deps;

  const status = async (message: InboundMessage, language: ReplyLanguage): Promise<string> => {
    const { session } = message;
    const { state, head, turn, waiting, setAside, inContext, settings } = await store.summary(session);
    const busy = state !== "idle" && head !== undefined;
    const tools = (turn?.calls ?? []).flatMap((call) => (call.state === "done" ? [] : [call.name]));
    return statusText(language, {
      nowMs: sharedNow(),
      model: settings.model ?? agents.of(message).model ?? model ?? "default",
      waiting: Math.max(0, waiting - setAside.length - (busy ? 1 : 0)),
      messages: inContext,
      asked: await askedIn(deps, session, language),
      ...(busy
        ? {
            running: {
              startedAtMs: turn?.startedAtMs ?? head.message.createdAtMs,
              step: (turn?.steps ?? 0) + 1,
              tools,
            },
          }
        : {}),
    });
  };

  const usage = async (message: InboundMessage, language: ReplyLanguage): Promise<string> => {
    const accounts = budgets.book.accountsOf(spenderOf(message, agents.of(message).name), sharedNow());
    const spent = accounts.length === 0 ? [] : await budgets.store.spent(accounts);
    const uses = accounts.map((account, at) => budgetUse(account, spent[at] ?? { tokens: 0, usd: 0 }));
    return usageText(uses, language, budgets.book);
  };

  const stopRunning = async ({ id, session, sender }: InboundMessage, language: ReplyLanguage) => {
    const stopped = await stop({ session, by: sender.id, orderId: id, reason: "stopped" });
    switch (stopped.result) {
      case "stopping":
        return undefined;
      case "nothing":
        return noticeText("nothingToStop", language);
      case "not_allowed":
        return notAllowedText(stopped.message, language);
    }
  };

  return async ({ name, argument }, message, language) => {
    switch (name) {
      case "help":
        return helpText(language, agents.of(message).commands);
      case "status":
        return await status(message, language);
      case "whoami":
        return whoamiText(language, message);
      case "usage":
        return await usage(message, language);
      case "permissions":
        return await rules(argument, message, language);
      case "stop":
        return await stopRunning(message, language);
    }
  };
}
