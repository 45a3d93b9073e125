import type { PersonMessage } from "@larkline/simulator";
import type { NormalisedRequest } from "@larkline/testkit";
import { waitForAnswer } from "./answer.ts";
import type { Written } from "./answers.ts";
import type { System } from "./system.ts";

/** A person and the chat that they write in. */
export interface Writer {
  openId: string;
  chatId: string;
}

/** What a person writes, of any kind. */
export type Writing = Omit<PersonMessage, "appId" | "chatId" | "from">;

/** Sends a message of any kind; resolves when the platform has got its acknowledgement. */
export async function send(
  { feishu, appId }: System,
  writer: Writer,
  writing: Writing,
): Promise<Written> {
  const { openId, chatId } = writer;
  const { messageId, delivery } = await feishu.sendMessage({
    appId,
    chatId,
    from: openId,
    ...writing,
  });
  const { outcome } = await delivery;
  if (outcome !== "acknowledged") throw new Error(`not acknowledged: ${outcome}`);
  return { chatId, messageId, text: writing.text ?? "" };
}

/** Takes a message back; resolves when the bot has got to know it. */
export async function takeBack(
  { feishu }: System,
  { messageId }: Pick<Written, "messageId">,
): Promise<void> {
  const told = Promise.withResolvers<void>();
  const stop = feishu.on("delivery", (delivery) => {
    if (delivery.eventType !== "im.message.recalled_v1" || delivery.messageId !== messageId) return;
    if (delivery.acknowledged) told.resolve();
  });
  await feishu.recall(messageId);
  await told.promise.finally(stop);
}

/** The text of the first finished answer. */
export async function answerTo(
  { feishu }: System,
  { messageId }: Written,
  timeoutMs = 80_000,
): Promise<string> {
  return (await waitForAnswer(feishu, messageId, { timeoutMs })).text;
}

/** A group of people with the bot; everyone's way to write in it. */
export function groupOf(
  { feishu, appId }: System,
  names: readonly string[],
  options: { topic?: boolean } = {},
): { chatId: string; people: Writer[] } {
  const openIds = names.map((name) => feishu.addUser({ name }).openId);
  const { chatId } = feishu.addChat({
    type: "group",
    name: "Team",
    members: [...openIds, appId],
    ...options,
  });
  return { chatId, people: openIds.map((openId) => ({ openId, chatId })) };
}

/** The newest request for an answer, with what its last user message says. */
export function lastRequest({ model }: System): NormalisedRequest & { asked: string } {
  const request = model.requests.at(-1);
  if (request === undefined) throw new Error("no model was asked");
  return {
    ...request,
    asked: request.messages.findLast(({ role }) => role === "user")?.text ?? "",
  };
}
