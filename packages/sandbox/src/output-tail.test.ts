import { expect, it } from "vitest";
import { OutputTail } from "./guest.ts";

it("what fits is kept as it is, whatever the pieces", () => {
  const output = new OutputTail();
  const text = "城市".repeat(5_000);
  for (const byte of Buffer.from(text)) output.push(Buffer.from([byte]));
  expect(output.text()).toBe(text);
  expect(output.total).toBe(Buffer.byteLength(text));
});

it.each([1, 10, 1_000, 40_000, 200_000])(
  "of what does not fit, head and tail are kept in pieces of %i bytes",
  (size) => {
    const lines = Array.from({ length: 40_000 }, (_, i) => `line ${i}\n`).join("");
    const output = new OutputTail();
    for (let at = 0; at < lines.length; at += size) {
      output.push(Buffer.from(lines.slice(at, at + size)));
    }
    const text = output.text();
    const [head = "", cut = "", tail = ""] = text.split(/\n\.\.\. (\d+) bytes left out \.\.\.\n/);
    expect(lines.startsWith(head)).toBe(true);
    expect(lines.endsWith(tail)).toBe(true);
    expect([head.length, tail.length]).toEqual([32_768, 32_768]);
    expect(head.length + Number(cut) + tail.length).toBe(lines.length);
  },
);
