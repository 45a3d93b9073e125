import type { ServerResponse } from "node:http";
import type { FeishuSimulator } from "../index.ts";
import { createMonthCounter } from "./month-counter.ts";
import { chatView, stateOf } from "./scene.ts";
import type { PlaygroundEvent } from "./view.ts";

const heartbeatMs = 15_000;
const maximumPages = 32;
const backlogLimitBytes = 4 * 1024 * 1024;

/** Server-Sent Events for the page: the whole state first, then each change. */
export interface EventStream {
  /** False when too many pages are open. */
  open(response: ServerResponse): boolean;
  send(event: PlaygroundEvent): void;
  close(): void;
}

export function createEventStream(simulator: FeishuSimulator): EventStream {
  const pages = new Set<ServerResponse>();
  const month = createMonthCounter();
  const send = (event: PlaygroundEvent): void => {
    if (pages.size === 0) return;
    const text = frame(event);
    for (const page of pages) write(page, text);
  };
  const listeners = [
    simulator.on("message", (message) => send({ type: "message", message })),
    simulator.on("apiCall", (call) => {
      month.count(call);
      send({ type: "call", call, faults: simulator.faults.size, monthCalls: month.calls });
    }),
    simulator.on("refusal", (refusal) => send({ type: "refusal", refusal })),
    simulator.on("delivery", (delivery) => send({ type: "delivery", delivery })),
    simulator.on("connection", () => send({ type: "apps", apps: simulator.apps })),
    simulator.on("chat", (chat) => send({ type: "chat", chat: chatView(chat) })),
    simulator.on("user", ({ openId, name }) => send({ type: "person", person: { openId, name } })),
  ];
  const heartbeat = setInterval(() => {
    for (const page of pages) write(page, ": alive\n\n");
  }, heartbeatMs);
  return {
    open(response) {
      if (pages.size >= maximumPages) return false;
      response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store" });
      response.write(frame({ type: "state", state: stateOf(simulator, month.calls) }));
      pages.add(response);
      response.on("close", () => pages.delete(response));
      return true;
    },
    send,
    close() {
      clearInterval(heartbeat);
      for (const stop of listeners) stop();
      for (const page of pages) page.end();
    },
  };
}

function frame(event: PlaygroundEvent): string {
  return `data: ${JSON.stringify(event)}\n\n`;
}

/** A page that does not read falls behind and is cut off; it connects again and gets the state. */
function write(page: ServerResponse, text: string): void {
  if (page.writableLength > backlogLimitBytes) page.destroy();
  else page.write(text);
}
