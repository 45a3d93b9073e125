import { expect, test } from "vitest";
import { decodeFrame, encodeFrame, frameHeader } from "./long-connection.ts";

const ping = "08001000182120002a0c0a0474797065120470696e67";
const pong =
  "08001000182120002a0c0a04747970651204706f6e6742547b225265636f6e6e656374436f756e74223a2d312c225265636f6e6e656374496e74657276616c223a3132302c225265636f6e6e6563744e6f6e6365223a33302c2250696e67496e74657276616c223a3132307d";
const data =
  "08011002182120012a0d0a047479706512056576656e742a100a0a6d6573736167655f696412026d312a080a0373756d1201312a080a037365711201302a0e0a0874726163655f69641202743142027b7d";

test("a ping frame is encoded as the official SDK does", () => {
  const frame = {
    seqId: 0,
    logId: 0,
    service: 33,
    method: 0,
    headers: [["type", "ping"]] satisfies [string, string][],
  };
  expect(encodeFrame(frame).toString("hex")).toBe(ping);
});

test.each([ping, pong, data])("decoding and encoding %s gives the same bytes", (hex) => {
  const frame = decodeFrame(Buffer.from(hex, "hex"));
  expect(frame && encodeFrame(frame).toString("hex")).toBe(hex);
});

test("a data frame shows its numbers, headers and payload", () => {
  const frame = decodeFrame(Buffer.from(data, "hex"));
  expect(frame).toMatchObject({ seqId: 1, logId: 2, service: 33, method: 1 });
  expect(frame && frameHeader(frame, "message_id")).toBe("m1");
  expect(frame?.payload?.toString()).toBe("{}");
});

test("numbers beyond 32 bits survive", () => {
  const bytes = encodeFrame({ seqId: 2 ** 45 + 7, logId: 300, service: 1, method: 1, headers: [] });
  expect(decodeFrame(bytes)).toMatchObject({ seqId: 2 ** 45 + 7, logId: 300 });
});

test.each(["", "08", "ffffffffffffffffffffff", "0a05", "2a030a0161"])(
  "the bytes %j are not a frame",
  (hex) => {
    expect(decodeFrame(Buffer.from(hex, "hex"))).toBeUndefined();
  },
);
