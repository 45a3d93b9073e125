import {
  deserializeMessage,
  serializeMessage,
  type JSONRPCMessage,
  type Transport,
} from "@modelcontextprotocol/client";
import type { StdioChannel } from "./server.ts";

/** Longest message of a server, in bytes: images in results are the largest. */
const maxMessageBytes = 16 * 1024 * 1024;
const newline = 0x0a;

/** Cuts a byte stream into lines; throws when one exceeds the limit. */
class LineBuffer {
  #chunks: Buffer[] = [];
  #bytes = 0;

  take(chunk: Buffer): string[] {
    const lines: string[] = [];
    let rest = chunk;
    for (let end = rest.indexOf(newline); end !== -1; end = rest.indexOf(newline)) {
      lines.push(Buffer.concat([...this.#chunks, rest.subarray(0, end)]).toString("utf8"));
      this.#chunks = [];
      this.#bytes = 0;
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) this.#chunks.push(rest);
    this.#bytes += rest.length;
    if (this.#bytes > maxMessageBytes) throw new Error(`a message exceeds ${maxMessageBytes} bytes`);
    return lines.filter((line) => line.trim() !== "");
  }
}

/**
 * MCP over the pipes of a channel: one JSON message a line. What is no message is reported and
 * skipped, as servers print to stdout by mistake; an endless line closes the channel.
 */
export class ChannelTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: Transport["onmessage"];
  readonly #channel: StdioChannel;
  readonly #lines = new LineBuffer();
  #closed = false;

  constructor(channel: StdioChannel) {
    this.#channel = channel;
  }

  start(): Promise<void> {
    const { stdin, stdout, ended } = this.#channel;
    stdin.on("error", (error) => this.onerror?.(error));
    stdout.on("error", (error) => this.onerror?.(error));
    stdout.on("data", (chunk: Buffer) => this.#read(chunk));
    void ended.then(() => this.#ended());
    return Promise.resolve();
  }

  async send(message: JSONRPCMessage): Promise<void> {
    if (this.#closed) throw new Error("the server has ended");
    await new Promise<void>((resolve, reject) => {
      this.#channel.stdin.write(serializeMessage(message), (error) => (error ? reject(error) : resolve()));
    });
  }

  async close(): Promise<void> {
    await this.#channel.close();
    this.#ended();
  }

  #ended(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.onclose?.();
  }

  #read(chunk: Buffer): void {
    let lines: string[] = [];
    try {
      lines = this.#lines.take(chunk);
    } catch (error) {
      this.#refuse(error);
      void this.close();
    }
    for (const line of lines) {
      try {
        this.onmessage?.(deserializeMessage(line));
      } catch (error) {
        this.#refuse(error);
      }
    }
  }

  #refuse(error: unknown): void {
    this.onerror?.(error instanceof Error ? error : new Error(String(error)));
  }
}
