import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { startChat as startProcess, type ChatProcess } from "./chat-process.fixture.ts";
import { delta, done, playServer } from "./played-server.fixture.ts";

/** Ended after the test. */
function startChat(...given: Parameters<typeof startProcess>): ChatProcess {
  const started = startProcess(...given);
  onTestFinished(() => void started.process.kill("SIGKILL"));
  return started;
}

const start = "POST /v1/runs";
const cancel = "POST /v1/runs/api.s-1/cancel";

describe("the chat program", () => {
  it("holds a conversation in one session, with the token as bearer", async () => {
    const server = await playServer({ reply: (input) => [delta(`你说${input}`), done] });
    const chat = startChat(["--url", server.url], { API_TOKEN: "t0ken", LANG: "zh_CN.UTF-8" });
    chat.type("一");
    await chat.until("你说一");
    chat.type("二");
    await chat.until("你说二");
    chat.type("quit");
    expect(await chat.exitCode()).toBe(0);
    expect(chat.screen().endsWith("再见!\n")).toBe(true);
    expect(new Set(server.requests.map(({ headers }) => headers.authorization))).toEqual(
      new Set(["Bearer t0ken"]),
    );
    const [first, second] = server.asked(start);
    expect(first?.body["session_id"]).toBe(second?.body["session_id"]);
    expect(first?.body["message_id"]).not.toBe(second?.body["message_id"]);
  });

  it("reads the token and the port of ingress from .env", async () => {
    const server = await playServer({ reply: () => [delta("known"), done] });
    const cwd = await mkdtemp(join(tmpdir(), "larkline-chat-"));
    onTestFinished(async () => await rm(cwd, { recursive: true }));
    await writeFile(
      join(cwd, ".env"),
      `API_TOKEN=of-the-file\nINGRESS_PORT=${new URL(server.url).port}\n`,
    );
    const chat = startChat([], {}, cwd);
    chat.type("hello");
    await chat.until("known");
    expect(server.asked(start)).toMatchObject([
      { headers: { authorization: "Bearer of-the-file" } },
    ]);
  });

  it("gives orders as orders, and sends what only looks like one as a message", async () => {
    const commands = "POST /v1/sessions/s/commands";
    const refusals = {
      [commands]: [{ status: 400, body: '{"error":"none","code":"no_command"}' }],
    };
    const server = await playServer({
      refusals,
      reply: (input) => [delta(`you say ${input}`), done],
    });
    const chat = startChat(["--url", server.url, "--session", "s", "--lang", "en"]);
    chat.type("/etc/hosts is empty");
    await chat.until("you say /etc/hosts is empty");
    chat.type("/status");
    await chat.until("did /status");
    expect(server.asked(start)).toHaveLength(1);
    expect(server.asked(commands).map(({ body }) => body["command"])).toEqual([
      "/etc/hosts is empty",
      "/status",
    ]);
  });

  it("cancels the run of the answer at Ctrl-C and leaves at the next one", async () => {
    const server = await playServer({ reply: () => [delta("slow")] });
    const chat = startChat(["--url", server.url, "--lang", "en"], { API_TOKEN: "t0ken" });
    chat.type("hello");
    await chat.until("slow");
    chat.process.kill("SIGINT");
    await chat.until("[Cancelled]");
    expect(server.asked(cancel)).toMatchObject([{ headers: { authorization: "Bearer t0ken" } }]);
    await vi.waitFor(() => expect(server.followers()).toBe(0), { timeout: 60_000, interval: 10 });
    chat.process.kill("SIGINT");
    expect(await chat.exitCode()).toBe(0);
    expect(chat.screen().endsWith("Goodbye!\n")).toBe(true);
  });

  it("says that the answer may continue when the server does not confirm the cancel", async () => {
    const server = await playServer({
      reply: () => [delta("slow")],
      refusals: { [cancel]: [{ status: 500 }] },
    });
    const chat = startChat(["--url", server.url, "--lang", "en"]);
    chat.type("hello");
    await chat.until("slow");
    chat.process.kill("SIGINT");
    await chat.until("[Error]: The server did not confirm the cancel");
    expect(chat.screen()).not.toContain("[Cancelled]");
  });

  it("repeats under the same id what may be stored, and what was not taken", async () => {
    const refused = (code: string) => ({
      status: 503,
      body: JSON.stringify({ error: "not taken", code }),
    });
    const refusals = { [start]: [refused(""), refused("uncertain")] };
    const server = await playServer({ refusals, reply: () => [delta("once"), done] });
    const chat = startChat(["--url", server.url]);
    chat.type("hello");
    await chat.until("once");
    expect(new Set(server.asked(start).map(({ body }) => body["message_id"])).size).toBe(1);
    expect(server.asked(start)).toHaveLength(3);
    expect(chat.screen()).not.toContain("错误");
  });

  it("continues after a broken connection where it stopped", async () => {
    const server = await playServer({ reply: () => [delta("first "), delta("half, ")] });
    const chat = startChat(["--url", server.url]);
    chat.type("hello");
    await chat.until("first half, ");
    server.cut();
    await vi.waitFor(() => expect(server.followers()).toBe(0), { timeout: 60_000, interval: 1 });
    server.tell(delta("second half"), done);
    await chat.until("first half, second half");
    chat.process.stdin.end();
    expect(await chat.exitCode()).toBe(0);
    expect(server.asked(start)).toHaveLength(1);
    expect(server.asked("GET /v1/runs/api.s-1/events").at(-1)?.query.get("after")).toBe("2");
    expect(server.asked(cancel)).toEqual([]);
  });

  it("says what to do when the server refuses the token", async () => {
    const server = await playServer({ refusals: { [start]: [{ status: 401 }] } });
    const chat = startChat(["--url", server.url, "--lang", "zh"]);
    chat.type("hello");
    await chat.until("[错误]: 服务器要求令牌：请把 API_TOKEN");
  });

  it("shows why the server refuses a request, and how a run failed", async () => {
    const error = {
      type: "error",
      code: "api_auth_error",
      message: "bad key",
      suggestion: "Check it.",
      retryable: false,
    };
    const server = await playServer({
      refusals: { [start]: [{ status: 413, body: '{"error":"too large"}' }] },
    });
    const chat = startChat(["--url", server.url, "--lang=en"]);
    chat.type("hello");
    await chat.until("[Error]: The server refused the request (413): too large");
    chat.type("again");
    await vi.waitFor(() => expect(server.followers()).toBe(1), { timeout: 60_000, interval: 10 });
    server.tell(error);
    await chat.until("[Error]: bad key\nCheck it.\n");
  });

  it("says what to do when no ingress listens", async () => {
    const chat = startChat(["--url", "http://127.0.0.1:1", "--lang=en"]);
    chat.type("hello");
    await chat.until("[Error]: Cannot reach http://127.0.0.1:1: run npm start first");
  });

  it("explains its flags when it is asked, and when one is wrong", async () => {
    const asked = startChat(["--help", "--lang", "en"]);
    expect(await asked.exitCode()).toBe(0);
    expect(asked.screen()).toMatch(
      /^npm run chat -- \[--url [^]*address of the ingress[^]*API_TOKEN/,
    );
    const wrong = startChat(["--lang", "fr"]);
    expect(await wrong.exitCode()).toBe(2);
    expect(wrong.screen()).toBe("");
  });
});
