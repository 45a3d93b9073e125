import type { SimMessage } from "../routes.ts";
import { changesBetween } from "./delta.ts";
import { base64Of } from "./request.ts";
import type { Recording, RecordingStep } from "./recording.ts";
import { byTime, type Store } from "./store.ts";

/** Notes how messages come and change, from the opening of the page on. */
export interface Recorder {
  note(message: SimMessage): void;
  /** What was noted of a chat; undefined when nothing was. */
  recordingOf(chatId: string): Promise<Recording | undefined>;
}

/** Steps kept of a chat: beyond them nothing more is noted, so that what is kept has its beginning. */
const mostSteps = 20_000;

interface Notes {
  startedAt: number;
  steps: RecordingStep[];
  messages: Map<string, SimMessage>;
}

export function createRecorder(store: Store): Recorder {
  const chats = new Map<string, Notes>();
  return {
    note(message) {
      const notes = chats.get(message.chatId) ?? firstNotes(store, message);
      chats.set(message.chatId, notes);
      const changes = changesBetween(notes.messages.get(message.messageId), message);
      if (changes.length === 0 || notes.steps.length >= mostSteps) return;
      notes.messages.set(message.messageId, message);
      const atMs = Math.round(performance.now() - notes.startedAt);
      notes.steps.push({ atMs, messageId: message.messageId, changes });
    },
    async recordingOf(chatId) {
      const chat = store.state.chats.find((one) => one.chatId === chatId);
      const notes = chats.get(chatId);
      if (chat === undefined || notes === undefined) return undefined;
      return {
        version: 1,
        chat,
        people: store.state.people.filter(({ openId }) => chat.members.includes(openId)),
        bots: store.state.apps.map(({ appId, name }) => ({ appId, name })),
        images: await imagesIn(JSON.stringify(notes.steps)),
        steps: [...notes.steps],
      };
    },
  };
}

/** The messages that were there before stand at the beginning. */
function firstNotes(store: Store, first: SimMessage): Notes {
  const earlier = store.state.messages
    .filter(({ chatId, messageId }) => chatId === first.chatId && messageId !== first.messageId)
    .toSorted(byTime);
  return {
    startedAt: performance.now(),
    steps: earlier.map((message) => ({
      atMs: 0,
      messageId: message.messageId,
      changes: changesBetween(undefined, message),
    })),
    messages: new Map(earlier.map((message) => [message.messageId, message])),
  };
}

async function imagesIn(text: string): Promise<Record<string, string>> {
  const images: Record<string, string> = {};
  for (const key of new Set(text.match(/img_v3_[\w-]+/g))) {
    const response = await fetch(`/api/images/${key}`, { signal: AbortSignal.timeout(10_000) });
    if (!response.ok) continue;
    const blob = await response.blob();
    images[key] = `data:${blob.type};base64,${await base64Of(blob)}`;
  }
  return images;
}

/** Hands a recording to the person as a file. */
export function downloadRecording(recording: Recording, name: string): void {
  const url = URL.createObjectURL(new Blob([JSON.stringify(recording)], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `${name.replaceAll(/[^\p{L}\p{N}]+/gu, "-")}.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
