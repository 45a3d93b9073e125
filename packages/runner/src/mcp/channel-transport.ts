import {
  deserializeMessage,
  serializeMessage,
  type JSONRPCMessage,
  type Transport,
} from "@modelcontextprotocol/client";
import type { StdioChannel } from "./server.ts";

/** Longest message of a server, in bytes: images in results are the largest. */
const maxMessageBytes = 16 * 1024 * 1024;
/** What a server that does not read leaves to wait here, in bytes. */
const maxUnreadBytes = 16 * 1024 * 1024;
/** More would keep this process from its other work. */
const maxMessagesPerSecond = 2_000;
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
 * skipped, as servers print to stdout by mistake; an endless line, a flood of lines and a server that
 * does not read what it is sent close the channel.
 */
export class ChannelTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: Transport["onmessage"];
  readonly #channel: StdioChannel;
  readonly #lines = new LineBuffer();
  #closed = false;
  #unreadBytes = 0;
  #second = { startedMs: 0, messages: 0 };

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
    const text = serializeMessage(message);
    const bytes = Buffer.byteLength(text);
    this.#unreadBytes += bytes;
    if (this.#unreadBytes > maxUnreadBytes) this.#giveUp(new Error("the server does not read what it is sent"));
    await new Promise<void>((resolve, reject) => {
      this.#channel.stdin.write(text, (error) => (error ? reject(error) : resolve()));
    });
    this.#unreadBytes -= bytes;
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
      this.#giveUp(error);
    }
    for (const line of lines) {
      if (this.#closed) return;
      if (this.#isFlood()) return this.#giveUp(new Error(`more than ${maxMessagesPerSecond} messages in a second`));
      try {
        this.onmessage?.(deserializeMessage(line));
      } catch (error) {
        this.#refuse(error);
      }
    }
  }

  #isFlood(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#second.startedMs > 1_000) this.#second = { startedMs: nowMs, messages: 0 };
    this.#second.messages += 1;
    return this.#second.messages > maxMessagesPerSecond;
  }

  /** At once: nothing more is read, whenever the server is really gone. */
  #giveUp(error: unknown): void {
    this.#refuse(error);
    this.#ended();
    void this.#channel.close();
  }

  #refuse(error: unknown): void {
    this.onerror?.(error instanceof Error ? error : new Error(String(error)));
  }
}
