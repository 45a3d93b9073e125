import type { AbilityClients, FilesClient, PrivateChatsClient } from "@larkline/agent";
import { answerUuid, sessionKeyOf } from "@larkline/agent/messages";
import { peopleOf } from "@larkline/protocol";
import type { TurnState } from "@larkline/protocol/turn";
import { FeishuError, sendFileMessage } from "@larkline/feishu";
import { folderLimits, problemOfPath } from "@larkline/store";
import { resultPage } from "@larkline/store/runners";
import { noteUse } from "./memories.ts";
import { schedulesClient } from "./schedules.ts";
import type { Services } from "./services.ts";

// The stores and clients of this process that abilities run their calls with.

export function abilityClientsOf(services: Services): AbilityClients {
  const { memories } = services;
  return {
    files: filesClient(services),
    memory: {
      find: async (asker, owners, query) => await memories.find(asker, owners, query),
      remember: async (owner, memory) => await memories.remember(owner, memory),
      forget: async (owner, ids) => await memories.forget(owner, ids),
      isOff: async (owner) => await memories.isOff(owner),
      noteUse: (found) => noteUse(services, found),
    },
    privateChats: privateChatsClient(services),
    schedules: schedulesClient(services),
    results: { page: async (session, page) => await resultPage(services, session, page) },
  };
}

/** How long the platform may take for one file, ms. */
const sendMs = 25_000;

function filesClient(services: Services): FilesClient {
  const { files, blobs } = services;
  return {
    limits: folderLimits,
    problemOfPath,
    all: async (session) => await files.all(session),
    read: async (session, path) => await files.read(session, path),
    change: async (session, change, text) => await files.change(session, change, text),
    kept: async (id) => {
      const blob = await blobs.get(id);
      return blob && { bytes: blob.bytes, ...(blob.facts.name && { name: blob.facts.name }) };
    },
    send: async (turn, file) => await send(services, turn, file),
  };
}

async function send(
  services: Services,
  turn: TurnState,
  { name, bytes: content, key: uuid }: Parameters<FilesClient["send"]>[1],
): ReturnType<FilesClient["send"]> {
  const { bots, clock } = services;
  const { message } = turn;
  const target = peopleOf(message).reply;
  const api = target.channel === "feishu" ? bots.get(target.app)?.api : undefined;
  if (target.channel !== "feishu" || api === undefined) return undefined;
  const ending = new AbortController();
  const cancel = clock.after(sendMs, () => ending.abort());
  const options = { signal: ending.signal, traceparent: message.traceparent };
  let isLeaving = false;
  try {
    const bytes = Buffer.from(content);
    const key = await api.files.uploadFile({ bytes, fileName: name, fileType: "stream" }, options);
    if (!(await isWanted(services, turn))) return "stopped";
    isLeaving = true;
    await sendFileMessage(api, { key, target, uuid }, options);
    return "sent";
  } catch (error) {
    if (!(error instanceof FeishuError)) throw error;
    return isLeaving && error.uncertain ? "unknown" : { refused: error.kind };
  } finally {
    cancel();
  }
}

/** Whether the turn still works, and has no cancel before it. */
async function isWanted(
  { store }: Services,
  { turnId, message: { session } }: TurnState,
): Promise<boolean> {
  const [{ turn }, isCancelled] = await Promise.all([
    store.summary(session),
    store.cancelled(session, [turnId]),
  ]);
  return turn?.turnId === turnId && !isCancelled;
}

function privateChatsClient({ bots, store, turns }: Services): PrivateChatsClient {
  return {
    answer: async (message, opening) => {
      const { app, id, sender } = message;
      const api = bots.get(app)?.api;
      if (api === undefined) return undefined;
      let sent: { messageId: string; chatId?: string };
      try {
        sent = await api.messages.send({
          receiveIdType: "open_id",
          receiveId: sender.id,
          uuid: answerUuid(app, id),
          text: opening,
        });
      } catch (error) {
        if (!(error instanceof FeishuError)) throw error;
        return undefined;
      }
      const { messageId, chatId = sender.id } = sent;
      const session = sessionKeyOf(app, chatId);
      const reply = { channel: "feishu", app, chatId, messageId, inThread: false } as const;
      const { result, wakeGen } = await store.append({ ...message, session, reply });
      if (wakeGen !== undefined) await turns.wake(session, wakeGen);
      return result === "full" ? "full" : "begun";
    },
  };
}
