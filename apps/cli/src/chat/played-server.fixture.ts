import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text as textOf } from "node:stream/consumers";
import type { EngineEvent } from "@larkline/protocol/event";
import { sseEvent } from "@larkline/protocol/views/stream-frame";
import type { Approval } from "@larkline/sdk";
import { onTestFinished } from "vitest";

// For tests: a server that plays runs of the session `s` to a client of `/v1/runs`.

export interface PlayedRequest {
  /** `<method> <path>`. */
  line: string;
  query: URLSearchParams;
  headers: IncomingMessage["headers"];
  body: Record<string, unknown>;
}

export interface PlayedServer {
  url: string;
  /** All but those for `/health`. */
  requests: PlayedRequest[];
  /** Those of one line. */
  asked(line: string): PlayedRequest[];
  /** Continues the newest run. */
  tell(...events: object[]): void;
  /** Breaks the connections of all followers. */
  cut(): void;
  /** How many followers are connected. */
  followers(): number;
}

export interface Playing {
  /** What runs tell at once, by their input. */
  reply?: (input: string) => EngineEvent[];
  /** By line: the statuses of the next requests in place of the usual one. */
  refusals?: Record<string, { status: number; body?: string }[]>;
  /** What runs wait for. */
  interruptions?: Approval[];
}

interface Follower {
  response: ServerResponse;
  run: number;
  at: number;
}

/** Ended after the test. */
export async function playServer({
  reply,
  refusals = {},
  interruptions = [],
}: Playing = {}): Promise<PlayedServer> {
  const requests: PlayedRequest[] = [];
  const runs: object[][] = [];
  const followers = new Set<Follower>();

  const send = (follower: Follower): void => {
    const events = runs[follower.run - 1] ?? [];
    for (; follower.at < events.length; follower.at += 1) {
      const event = events[follower.at];
      const seq = follower.at + 1;
      const data = { seq, runId: `api.s-${follower.run}`, agent: "default", atMs: 1, event };
      follower.response.write(sseEvent({ id: `${seq}`, data }));
      const { type = "" } = event as { type?: string };
      if (type === "done" || type === "error") {
        follower.response.end(sseEvent({ event: "end", data: {} }));
      }
    }
  };

  const answer = async (incoming: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { pathname, searchParams: query } = new URL(incoming.url ?? "/", "http://server");
    const text = await textOf(incoming);
    const line = `${incoming.method} ${pathname}`;
    if (line === "GET /health") return void response.end("{}");
    const body = text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
    requests.push({ line, query, headers: incoming.headers, body });
    const refusal = refusals[line]?.shift();
    if (refusal !== undefined) {
      return void response.writeHead(refusal.status).end(refusal.body ?? "{}");
    }
    const [, ordinal = "0", rest = ""] = /^\/v1\/runs\/api\.s-(\d+)(.*)$/.exec(pathname) ?? [];
    const run = Number(ordinal);
    if (line === "POST /v1/runs") {
      runs.push(reply?.(String(body["input"])) ?? []);
      return void response
        .writeHead(202)
        .end(JSON.stringify({ run_id: `api.s-${runs.length}`, session_id: "s" }));
    }
    const did = JSON.stringify({ text: `did ${String(body["command"])}` });
    if (line.endsWith("/commands")) return void response.end(did);
    if (rest !== "/events") {
      const report = {
        run_id: `api.s-${ordinal}`,
        response_ids: [],
        interruptions,
        children: [],
        next: null,
      };
      return void response
        .writeHead(line.startsWith("GET") ? 200 : 202)
        .end(JSON.stringify(report));
    }
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.flushHeaders();
    const follower = { response, run, at: Number(query.get("after") ?? 0) };
    followers.add(follower);
    response.on("close", () => followers.delete(follower));
    send(follower);
  };

  const server = createServer((incoming, response) => void answer(incoming, response));
  onTestFinished(() => void server.close(() => undefined).closeAllConnections());
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, // it listens on TCP
    requests,
    asked: (line) => requests.filter((request) => request.line === line),
    tell: (...events) => {
      runs.at(-1)?.push(...events);
      for (const follower of followers) send(follower);
    },
    cut: () => {
      for (const { response } of followers) response.destroy();
    },
    followers: () => followers.size,
  };
}

/** Some of what a model says. */
export const delta = (text: string): EngineEvent => ({ type: "text_delta", text });

/** The normal end of a run. */
export const done: EngineEvent = {
  type: "done",
  totalInputTokens: 1,
  totalOutputTokens: 1,
  totalCostUsd: 0,
  turnCount: 1,
  reason: "",
  final: "",
};
