import { formatSseEvent, type StreamFrame } from "@larkline/protocol";
import { describe, expect, it } from "vitest";
import { readFrames, type ReceivedFrame } from "./chat-client.ts";

async function* chunks(...parts: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* parts;
}

async function framesIn(...parts: Uint8Array[]): Promise<ReceivedFrame[]> {
  const frames: ReceivedFrame[] = [];
  for await (const frame of readFrames(chunks(...parts))) frames.push(frame);
  return frames;
}

const run: StreamFrame[] = [
  { type: "user_message", content: "北京天气？" },
  { type: "assistant", content: "好，\n我来查" },
  { type: "tool_call", name: "get_weather", args: { city: "北京" } },
  { type: "tool_result", name: "get_weather", result: { 温度: "25°C 🌤" } },
  { type: "done", final: "晴" },
];

describe("readFrames", () => {
  it("SA-33: reads the same frames wherever the bytes are cut, inside a Chinese character too", async () => {
    const bytes = new TextEncoder().encode(run.map((frame) => formatSseEvent(frame)).join(""));
    for (let cut = 1; cut < bytes.length; cut += 1) {
      const frames = await framesIn(bytes.subarray(0, cut), bytes.subarray(cut));
      expect(frames.map(({ frame }) => frame)).toEqual(run);
    }
    const single = await framesIn(...Array.from(bytes, (byte) => Uint8Array.of(byte)));
    expect(single.map(({ frame }) => frame)).toEqual(run);
  });

  it("SA-34: skips heartbeats and keeps the id of a frame apart from its data", async () => {
    const text = `: ping\n\n${formatSseEvent({ type: "assistant", content: "a" }, 7)}: ping\n\n${formatSseEvent({ type: "done", final: "a" })}`;
    expect(await framesIn(new TextEncoder().encode(text))).toEqual([
      { frame: { type: "assistant", content: "a" }, id: "7" },
      { frame: { type: "done", final: "a" }, id: undefined },
    ]);
  });

  it("skips unknown types, data that is no frame, and an incomplete end", async () => {
    const text = 'data: {"type":"later"}\n\ndata: nonsense\n\ndata: {"type":"done","final":""}\n\ndata: {"type":"do';
    expect((await framesIn(new TextEncoder().encode(text))).map(({ frame }) => frame)).toEqual([
      { type: "done", final: "" },
    ]);
  });
});
