import { FeishuApi, WebhookVerifier, inboundFromEvent, type FeishuMessage } from "@larkline/feishu";
import { createModelChain, findModelInfo, type ModelChain } from "@larkline/model";
import { createAnthropicBackend } from "@larkline/model/anthropic";
import { createServer, type IncomingMessage } from "node:http";

// What the baselines share with the product: the same vendor adapters, checks and platform client,
// so that only queue, Redis and guarantees differ.

function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === "") throw new Error(`${name} is not set`);
  return value;
}

export function chainOfEnvironment(): ModelChain {
  const backend = createAnthropicBackend({
    apiKey: setting("ANTHROPIC_API_KEY"),
    baseUrl: setting("ANTHROPIC_BASE_URL"),
  });
  return createModelChain({
    models: [{ info: findModelInfo("anthropic", "claude-sonnet-4-6"), backend }],
  });
}

export function apiOfEnvironment() {
  return new FeishuApi({
    appId: setting("FEISHU_APP_ID"),
    appSecret: setting("FEISHU_APP_SECRET"),
    domain: setting("FEISHU_DOMAIN"),
    tokenCache: { get: async (_name, fetch) => (await fetch()).value }, // the client remembers it for a minute
  });
}

export const redisUrl = (): string => setting("REDIS_URL");

async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(piece as Buffer);
  return Buffer.concat(pieces);
}

/** Serves `/ready` and hands each verified message to `accept` before it answers 200. */
export function serveWebhook(accept: (message: FeishuMessage) => Promise<void>): void {
  const verifier = new WebhookVerifier({
    encryptKey: setting("FEISHU_ENCRYPT_KEY"),
    verificationToken: setting("FEISHU_VERIFICATION_TOKEN"),
  });
  const server = createServer(async (request, response) => {
    if (request.method === "GET") return void response.end("ok");
    const verdict = verifier.verify(await bodyOf(request), request.headers);
    if (verdict.kind !== "event") return void response.writeHead(401).end();
    const parsed = inboundFromEvent(verdict.envelope, { botOpenId: "" });
    if (parsed.ok) await accept(parsed.value);
    response.end("{}");
  });
  server.listen(Number(setting("PORT")), "127.0.0.1");
}

/** Serves `/ready` only. */
export function serveReady(): void {
  createServer((_request, response) => response.end("ok")).listen(
    Number(setting("PORT")),
    "127.0.0.1",
  );
}
