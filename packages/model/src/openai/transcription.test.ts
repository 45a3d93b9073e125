import { createServer, type Server } from "node:http";
import { afterEach, expect, it } from "vitest";
import { transcribe } from "./index.ts";

let server: Server | undefined;
afterEach(async () => {
  await new Promise((resolve) =>
    server === undefined ? resolve(undefined) : server.close(resolve),
  );
  server?.closeAllConnections();
});

/** A server that answers so; resolves with its address and what it was sent. */
async function serverWith(status: number, body: string, headers: Record<string, string> = {}) {
  const seen: { path: string; key: string; form: FormData }[] = [];
  server = createServer((request, response) => {
    void (async () => {
      const pieces: Buffer[] = [];
      for await (const piece of request) pieces.push(piece as Buffer);
      const type = { "content-type": request.headers["content-type"] ?? "" };
      const form = await new Response(Buffer.concat(pieces), { headers: type }).formData();
      seen.push({ path: request.url ?? "", key: request.headers.authorization ?? "", form });
      response.writeHead(status, { connection: "close", ...headers }).end(body);
    })();
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server?.once("listening", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  return {
    access: { model: "whisper-1", apiKey: "sk-1", baseUrl: `http://127.0.0.1:${port}/v1/` },
    seen,
  };
}

const recording = { bytes: Buffer.from("OggS sound"), name: "voice.ogg", mediaType: "audio/ogg" };
const never = new AbortController().signal;

it("a recording is sent as OpenAI's interface takes it, and what is said comes back", async () => {
  const { access, seen } = await serverWith(200, JSON.stringify({ text: " 三点开会 " }));
  expect(await transcribe(access, recording, never)).toBe("三点开会");
  expect(seen).toMatchObject([{ path: "/v1/audio/transcriptions", key: "Bearer sk-1" }]);
  const [{ form } = { form: new FormData() }] = seen;
  expect(form.get("model")).toBe("whisper-1");
  const file = form.get("file");
  expect(file).toMatchObject({ name: "voice.ogg", type: "audio/ogg" });
  expect(file instanceof File && (await file.text())).toBe("OggS sound");
});

it.each([
  ["refuses", 401, '{"error":{"message":"wrong key sk-1"}}', "answered 401"],
  ["gives something else", 200, '{"text":5}', "gave no text"],
  ["gives no JSON", 200, "<html>", "gave no text"],
  ["never ends", 200, "x".repeat(1_000_001), "gave too much"],
])("a server that %s is an error without its words", async (_what, status, body, words) => {
  const { access } = await serverWith(status, body);
  await expect(transcribe(access, recording, never)).rejects.toThrow(
    `the server of the transcription ${words}`,
  );
});

it("the key follows no redirect", async () => {
  const { access, seen } = await serverWith(307, "", { location: "http://127.0.0.1:9/" });
  await expect(transcribe(access, recording, never)).rejects.toThrow();
  expect(seen).toHaveLength(1);
});
