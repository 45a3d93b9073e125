import { createHash } from "node:crypto";
import { sessionKeyOf } from "@larkline/agent/messages";
import type { OutboxRecord } from "@larkline/store";
import type { Services } from "./services.ts";

/** What a person reads where they talk to the bot alone. */
interface PersonNotice {
  app: string;
  /** open_id of the person. */
  to: string;
  /** The same notice is sent once. */
  key: string;
  /** Apart from the sessions of turns: an unsent answer there would hold it up. */
  conversation: string;
  text: string;
}

/** Stores a notice to a person and sends it in the background; a worker sends later what could not be sent now. */
export async function noticePerson(
  { store, outboxSender, clock }: Pick<Services, "store" | "outboxSender" | "clock">,
  { app, to, key, conversation, text }: PersonNotice,
): Promise<void> {
  const record: OutboxRecord = {
    v: 1,
    id: key,
    uuid: createHash("sha256").update(`${app} ${key}`).digest("base64url").slice(0, 40),
    session: sessionKeyOf(app, `${conversation}-notices`),
    target: { app, chatId: to, messageId: "", inThread: false },
    text,
    createdAtMs: clock.now(),
    attempts: 0,
    uncertainSinceMs: 0,
  };
  const { lease } = await store.outbox.push(record, key);
  if (lease !== undefined) void outboxSender.deliver(lease);
}
