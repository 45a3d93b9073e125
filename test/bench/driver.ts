import { setMaxListeners } from "node:events";
import type { System } from "../system/system.ts";

/** One message on its way, by the clock of the bench process, which hosts platform and model. */
export interface Trip {
  sentMs: number;
  /** Arrival of each model request, and when its answer had been handed to the network. */
  modelMs: { in: number; out: number }[];
  repliedMs: number;
}

const trips = new Map<string, Trip>();

/** Called by the scripted model for every request; the text names the trip. */
export function noteModel(key: string, at: "in" | "out"): void {
  const trip = trips.get(key);
  if (trip === undefined) return;
  const now = performance.now();
  if (at === "in") trip.modelMs.push({ in: now, out: now });
  else {
    const last = trip.modelMs.at(-1);
    if (last !== undefined) last.out = now;
  }
}

export interface LoadOptions {
  system: Pick<System, "feishu" | "appId" | "person">;
  /** Messages waiting for an answer at any moment, each in a chat of its own. */
  inFlight: number;
  /** Messages of one chat before a new one is used: keeps conversations short. */
  perChat: number;
  messages: number;
  /** What to send; the first line must be the key. */
  text: (key: string) => string;
}

export interface LoadResult {
  trips: Trip[];
  seconds: number;
}

/** Keeps `inFlight` messages on their way until `messages` are answered. */
export async function load({ system, inFlight, messages, perChat, text }: LoadOptions): Promise<LoadResult> {
  setMaxListeners(0);
  const { feishu, appId } = system;
  const waiting = new Map<string, () => void>();
  const off = feishu.on("message", ({ senderType, parentId }) => {
    if (senderType === "app" && parentId !== undefined) waiting.get(parentId)?.();
  });
  const done: Trip[] = [];
  let started = 0;
  const startedMs = performance.now();
  await Promise.all(
    Array.from({ length: inFlight }, async (_, lane) => {
      let person = system.person(`bench ${lane}`);
      for (let written = 1; started < messages; written += 1) {
        started += 1;
        if (written % perChat === 0) person = system.person(`bench ${lane}`);
        const { openId, chatId } = person;
        const key = `k${started}-${chatId.slice(-6)}`;
        const trip: Trip = { sentMs: performance.now(), modelMs: [], repliedMs: 0 };
        trips.set(key, trip);
        const { messageId } = await feishu.sendMessage({ appId, chatId, from: openId, text: text(key) });
        await new Promise<void>((resolve, reject) => {
          const late = setTimeout(() => reject(new Error(`no answer to ${key} within 30 s`)), 30_000);
          waiting.set(messageId, () => {
            clearTimeout(late);
            resolve();
          });
        });
        waiting.delete(messageId);
        trip.repliedMs = performance.now();
        trips.delete(key);
        done.push(trip);
      }
    }),
  );
  off();
  return { trips: done, seconds: (performance.now() - startedMs) / 1_000 };
}
