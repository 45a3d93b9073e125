import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { boundedFetch, maxMessageBytes } from "./connection.ts";

const piece = Buffer.alloc(1_048_576, "a");
const pieces = maxMessageBytes / piece.length;
const closers: (() => void)[] = [];
afterEach(() => {
  for (const close of closers.splice(0)) close();
});

/** Asks a server that gives a set answer, and reads all of it. */
async function bytesOf(
  contentType: string,
  answer: (response: ServerResponse) => void,
): Promise<number> {
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": contentType });
    answer(response);
  }).listen(0, "127.0.0.1");
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  await once(server, "listening");
  const { port } = server.address() as AddressInfo; // a TCP server has one
  const response = await boundedFetch(fetch)(`http://127.0.0.1:${port}`);
  return (await response.arrayBuffer()).byteLength;
}

function endless(response: ServerResponse): void {
  const write = (): void => {
    while (!response.destroyed && response.write(piece));
  };
  response.on("drain", write);
  write();
}

describe("an answer of a server over HTTP", () => {
  it.each(["application/json", "text/event-stream"])(
    "of %s without end is broken off",
    async (type) => {
      await expect(bytesOf(type, endless)).rejects.toThrow("exceeds");
    },
  );

  it("of many events may be as long as it likes: each has the bound for itself", async () => {
    const events = pieces * 2;
    const total = await bytesOf("text/event-stream", (response) => {
      for (let i = 0; i < events; i += 1) {
        response.write(Buffer.concat([piece, Buffer.from("\n\n")]));
      }
      response.end();
    });
    expect(total).toBe(events * (piece.length + 2));
  });
});
