import type { NormalisedRequest } from "@larkline/testkit";
import { visibleAnswers, type Answer } from "../system/answer.ts";
import type { Actions, Written } from "./people.ts";
import type { World } from "./world.ts";

// Reads only what people and the model have seen: the messages of the platform, the requests of the model, and the runs
// of the tools.

/** What is to be checked. */
export interface Seen {
  world: World;
  actions: Actions;
  /** Runs of the tools: `effect key`. */
  runs: readonly string[];
}

function answersTo({ world: { feishu } }: Seen, { chatId, messageId = "" }: Written): Answer[] {
  return visibleAnswers(feishu, { chatId, messageId });
}

/** Whether each accepted message has a finished answer. */
export function isAnswered(seen: Seen): boolean {
  return seen.actions.written.every(
    (message) => !message.isAccepted || answersTo(seen, message).some(({ finished }) => finished),
  );
}

/** What the product has promised and not kept; in words. */
export function brokenPromises(seen: Seen): string[] {
  return [
    ...seen.actions.written.flatMap((message) => wrongAnswers(seen, message)),
    ...wrongOrder(seen),
    ...wrongRuns(seen),
    ...seen.world.model.requests.flatMap((request) => wrongRequest(request, seen)),
  ];
}

function wrongAnswers(seen: Seen, message: Written): string[] {
  const { isAccepted, key, tool } = message;
  const answers = answersTo(seen, message);
  const texts = answers.map(({ text }) => JSON.stringify(text.slice(0, 200))).join(" and ");
  if (answers.length > 1) return [`m${key} has ${answers.length} answers: ${texts}`];
  const [answer] = answers;
  if (answer === undefined) return isAccepted ? [`m${key} was accepted and never answered`] : [];
  if (!answer.finished) return [`the answer to m${key} was never finished: ${texts}`];
  // The model shows the name of who has said it, if the name could be looked up.
  const said = new RegExp(`^\\[(?:\\w+: )?m${key}\\b`);
  if (!said.test(answer.text)) return [`m${key} is answered by ${texts}, not by what the model says to it`];
  const hasResult = tool === undefined || / (?:ok|failed):/.test(answer.text);
  return hasResult ? [] : [`m${key} is answered without its call: ${texts}`];
}

/** To each person in a chat the answers come in the order in which their messages were accepted. */
function wrongOrder(seen: Seen): string[] {
  const people = Map.groupBy(seen.actions.written, ({ chatId, openId }) => `${chatId} ${openId}`);
  return [...people.values()].flatMap((own) => {
    const [first] = own;
    const places = seen.world.feishu.messages(first?.chatId ?? "").map(({ messageId }) => messageId);
    const answered = own.flatMap((message) => {
      const [answer] = answersTo(seen, message);
      return answer === undefined
        ? []
        : [{ key: message.key, at: places.indexOf(answer.messages[0]?.messageId ?? "") }];
    });
    return answered.flatMap(({ key, at }, index) => {
      const before = answered[index - 1];
      return before !== undefined && at < before.at ? [`m${key} was answered before m${before.key}`] : [];
    });
  });
}

/** A `once` call runs at most once, and one that needs an approval only when the person who asked for it has approved. */
function wrongRuns({ runs, actions }: Seen): string[] {
  const once = Map.groupBy(
    runs.filter((run) => run.startsWith("once ")),
    (run) => run,
  );
  const repeated = [...once].flatMap(([run, all]) => (all.length > 1 ? [`${run} ran ${all.length} times`] : []));
  const unapproved = actions.written.flatMap(({ key, tool, chatId, openId }) => {
    if (tool !== "ask_once" || !once.has(`once ${key}`)) return [];
    const isApproved = actions.decisions.some(
      (decision) => decision.chatId === chatId && decision.openId === openId && decision.word === "approve",
    );
    return isApproved ? [] : [`once ${key} ran although its writer has not approved it`];
  });
  return [...repeated, ...unapproved];
}

/** The model is asked for what people wrote, in their order, each message of theirs once, each call with its result. */
function wrongRequest({ messages }: NormalisedRequest, { actions }: Seen): string[] {
  const texts = messages.filter(({ role }) => role === "user").flatMap(({ text, blocks }) => blocks ?? [text]);
  const keys = texts.flatMap((text) => /^(?:\w+: )?m(\d\d)/.exec(text)?.[1] ?? []);
  const problems: string[] = [];
  if (new Set(keys).size !== keys.length) problems.push(`the model is asked for ${keys.join(", ")}: one of them twice`);
  const chats = new Set(keys.map((key) => actions.written.find((message) => message.key === key)?.chatId));
  if (chats.size > 1) problems.push(`the model sees messages of different chats: ${keys.join(", ")}`);
  const calls = messages.flatMap((message) => message.calls.map(({ id }) => id));
  const results = messages.flatMap((message) => message.results.map(({ id }) => id));
  const pairs = `calls ${calls.join()} with results ${results.join()}`;
  if (calls.join() !== results.join()) problems.push(`the model sees ${pairs}`);
  return problems;
}

/** The run in the order of its events, for people. */
export function chronicle({ world: { feishu }, actions, runs }: Seen): string[] {
  const chats = [...feishu.chats.keys()].flatMap((chatId, at) => [
    `chat ${at + 1}:`,
    ...feishu.messages(chatId).map(({ senderType, text, messageId, parentId, recalled }) => {
      const to = parentId === undefined ? "" : ` to ${parentId.slice(0, 9)}`;
      return `  ${messageId.slice(0, 9)} ${senderType}${to}${recalled ? " (recalled)" : ""}: ${JSON.stringify(text)}`;
    }),
  ]);
  const clicks = actions.decisions.map(
    ({ atMs, word, toast }) => `  ${atMs.toFixed(0)} ms: ${word}, answered by ${toast ?? "nothing"}`,
  );
  return [...chats, "clicks:", ...clicks, "runs of tools:", ...runs.map((run) => `  ${run}`)];
}
