import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

/** A request that the webhook received. */
export interface ReceivedWebhook {
  headers: IncomingHttpHeaders;
  raw: string;
  body: Record<string, unknown>;
  at: number;
}

export interface WebhookAnswer {
  status?: number;
  body?: unknown;
  /** Answers when this has settled. */
  after?: Promise<unknown>;
}

export interface TestWebhook {
  url: string;
  received: ReceivedWebhook[];
  close(): Promise<void>;
}

/** A request address for tests; `answer` decides per request, in order of arrival. */
export async function startTestWebhook(
  answer: (request: ReceivedWebhook, index: number) => WebhookAnswer,
): Promise<TestWebhook> {
  const received: ReceivedWebhook[] = [];
  // The platform keeps its connections: none is closed between two events because this process stood still.
  const server = createServer({ keepAliveTimeout: 60_000 }, (request, response) => {
    let raw = "";
    request.setEncoding("utf8");
    request.on("data", (chunk: string) => (raw += chunk));
    request.on("end", () => {
      const entry = { headers: request.headers, raw, body: { ...JSON.parse(raw) }, at: Date.now() };
      const { status = 200, body = {}, after } = answer(entry, received.length);
      received.push(entry);
      const send = () =>
        response
          .writeHead(status, { "content-type": "application/json" })
          .end(JSON.stringify(body));
      if (after === undefined) send();
      else void after.finally(send);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // A TCP server that listens has an address of this form.
  const close = async (): Promise<void> => {
    server.closeAllConnections();
    await new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return { url: `http://127.0.0.1:${port}/feishu/events`, received, close };
}
