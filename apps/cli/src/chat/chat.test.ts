import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text as textOf } from "node:stream/consumers";
import { formatSseEvent, type StreamFrame } from "@larkline/protocol";
import { afterEach, describe, expect, it, vi } from "vitest";
import { startChat as startProcess, type ChatProcess } from "./chat-process.fixture.ts";

interface Request {
  url: string;
  headers: IncomingMessage["headers"];
  body: Record<string, unknown>;
}

type Answer = (response: ServerResponse, request: Request) => void;

let server: Server | undefined;
let child: ChatProcess["process"] | undefined;

/** A server that speaks the wire format, one answer per request; keeps what it was asked. */
async function startServer(...answers: Answer[]) {
  const requests: Request[] = [];
  const started = createServer(async (incoming, response) => {
    const body = await textOf(incoming);
    const request = { url: incoming.url ?? "", headers: incoming.headers, body: body === "" ? {} : JSON.parse(body) };
    requests.push(request);
    answers[requests.length - 1]?.(response, request);
  });
  server = started;
  await once(started.listen(0, "127.0.0.1"), "listening");
  const { port } = started.address() as AddressInfo; // it listens on TCP
  return { url: `http://127.0.0.1:${port}`, requests };
}

/** Ended after the test. */
function startChat(...given: Parameters<typeof startProcess>): ChatProcess {
  const started = startProcess(...given);
  child = started.process;
  return started;
}

function stream(response: ServerResponse, ...frames: StreamFrame[]) {
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const [index, frame] of frames.entries()) response.write(formatSseEvent(frame, index + 1));
}

afterEach(() => {
  child?.kill("SIGKILL");
  server?.closeAllConnections();
  server?.close();
});

describe("the chat program", () => {
  it("holds a conversation in one session, with the token as bearer", async () => {
    const reply: Answer = (response, { body }) => {
      stream(response, { type: "assistant", content: `你说${String(body["message"])}` }, { type: "done", final: "" });
      response.end();
    };
    const { url, requests } = await startServer(reply, reply);
    const chat = startChat(["--url", url], { API_TOKEN: "t0ken" });
    chat.type("一");
    await chat.until("你说一");
    chat.type("二");
    await chat.until("你说二");
    chat.type("quit");
    expect(await chat.exitCode()).toBe(0);
    expect(chat.screen().endsWith("再见!\n")).toBe(true);
    expect(requests.map(({ headers }) => headers.authorization)).toEqual(["Bearer t0ken", "Bearer t0ken"]);
    expect(requests[0]?.body["session_id"]).toBe(requests[1]?.body["session_id"]);
    expect(requests[0]?.body["message_id"]).not.toBe(requests[1]?.body["message_id"]);
  });

  it("cancels the run of the answer at Ctrl-C and leaves at the next one", async () => {
    let left = false;
    const { url, requests } = await startServer(
      (response) => {
        response.setHeader("x-run-id", "api.s-1");
        stream(response, { type: "assistant", content: "slow" });
        response.on("close", () => (left = true));
      },
      (response) => void response.writeHead(202).end("{}"),
    );
    const chat = startChat(["--url", url, "--lang", "en"], { API_TOKEN: "t0ken" });
    chat.type("hello");
    await chat.until("slow");
    chat.process.kill("SIGINT");
    await chat.until("[Cancelled]");
    expect(requests[0]?.body["on_disconnect"]).toBe("continue");
    expect(requests[1]).toMatchObject({
      url: "/v1/runs/api.s-1/cancel",
      headers: { authorization: "Bearer t0ken" },
    });
    await vi.waitFor(() => expect(left).toBe(true), { timeout: 60_000, interval: 10 });
    chat.process.kill("SIGINT");
    expect(await chat.exitCode()).toBe(0);
    expect(chat.screen().endsWith("Goodbye!\n")).toBe(true);
  });

  it("says that the answer may continue when the server does not confirm the cancel", async () => {
    const { url } = await startServer(
      (response) => {
        response.setHeader("x-run-id", "api.s-1");
        stream(response, { type: "assistant", content: "slow" });
      },
      (response) => void response.writeHead(503).end("{}"),
    );
    const chat = startChat(["--url", url, "--lang", "en"]);
    chat.type("hello");
    await chat.until("slow");
    chat.process.kill("SIGINT");
    await chat.until("[Error]: The server did not confirm the cancel");
    expect(chat.screen()).not.toContain("[Cancelled]");
  });

  it("repeats under the same id what may be stored, and what was not taken", async () => {
    const ids = { session_id: "s", message_id: "m" };
    const { url, requests } = await startServer(
      (response) => void response.writeHead(503).end('{"error":"not taken"}'),
      (response) => {
        stream(response, { type: "error", message: "ERROR: may be stored", code: "uncertain", ...ids });
        response.end();
      },
      (response) => {
        stream(response, { type: "assistant", content: "once" }, { type: "done", final: "once" });
        response.end();
      },
    );
    const chat = startChat(["--url", url]);
    chat.type("hello");
    await chat.until("once");
    expect(new Set(requests.map(({ body }) => body["message_id"])).size).toBe(1);
    expect(chat.screen()).not.toContain("错误");
  });

  it("continues after a broken connection where it stopped", async () => {
    const { url, requests } = await startServer(
      (response) => {
        response.setHeader("x-run-id", "api.s-1");
        stream(response, { type: "assistant", content: "first " }, { type: "assistant", content: "half, " });
        setImmediate(() => response.socket?.destroy());
      },
      (response) => {
        stream(response, { type: "assistant", content: "second half" }, { type: "done", final: "" });
        response.end();
      },
    );
    const chat = startChat(["--url", url]);
    chat.type("hello");
    await chat.until("second half");
    chat.process.stdin.end();
    expect(await chat.exitCode()).toBe(0);
    expect(requests[1]?.headers["last-event-id"]).toBe("2");
    expect(requests[1]?.body["message_id"]).toBe(requests[0]?.body["message_id"]);
  });

  it("says what to do when the server refuses the token", async () => {
    const { url } = await startServer((response) => void response.writeHead(401).end("{}"));
    const chat = startChat(["--url", url]);
    chat.type("hello");
    await chat.until("[错误]: 服务器要求令牌：请把 API_TOKEN");
  });

  it("shows why the server refuses a request", async () => {
    const { url } = await startServer((response) => void response.writeHead(413).end('{"error":"too large"}'));
    const chat = startChat(["--url", url, "--lang=en"]);
    chat.type("hello");
    await chat.until("[Error]: The server refused the request (413): too large");
  });

  it("says what to do when no ingress listens", async () => {
    const chat = startChat(["--url", "http://127.0.0.1:1", "--lang=en"]);
    chat.type("hello");
    await chat.until("[Error]: Cannot reach http://127.0.0.1:1: run npm start first");
  });

  it("explains its flags when one is wrong", async () => {
    const chat = startChat(["--lang", "fr"]);
    expect(await chat.exitCode()).toBe(2);
  });
});
