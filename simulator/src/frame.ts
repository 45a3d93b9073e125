/** A long-connection frame (protobuf `pbbp2.Frame`, proto2). `method`: 0 control, 1 data. */
export interface Frame {
  seqId: number;
  logId: number;
  service: number;
  method: number;
  headers: [key: string, value: string][];
  payloadEncoding?: string;
  payloadType?: string;
  payload?: Buffer;
  logIdNew?: string;
}

const varintField = 0;
const bytesField = 2;

/** Encodes a frame; the four required numbers are written even when they are 0. */
export function encodeFrame(frame: Frame): Buffer {
  const parts: Buffer[] = [
    varint(1, frame.seqId),
    varint(2, frame.logId),
    varint(3, frame.service),
    varint(4, frame.method),
  ];
  for (const [key, value] of frame.headers) {
    parts.push(bytes(5, Buffer.concat([bytes(1, Buffer.from(key)), bytes(2, Buffer.from(value))])));
  }
  if (frame.payloadEncoding !== undefined) parts.push(bytes(6, Buffer.from(frame.payloadEncoding)));
  if (frame.payloadType !== undefined) parts.push(bytes(7, Buffer.from(frame.payloadType)));
  if (frame.payload !== undefined) parts.push(bytes(8, frame.payload));
  if (frame.logIdNew !== undefined) parts.push(bytes(9, Buffer.from(frame.logIdNew)));
  return Buffer.concat(parts);
}

/** Decodes a frame, or gives undefined when the bytes are not one. */
export function decodeFrame(buffer: Buffer): Frame | undefined {
  const fields = decodeFields(buffer);
  if (fields === undefined) return undefined;
  const frame: Frame = { seqId: -1, logId: -1, service: -1, method: -1, headers: [] };
  for (const field of fields) {
    if (!assignField(frame, field)) return undefined;
  }
  return Math.min(frame.seqId, frame.logId, frame.service, frame.method) < 0 ? undefined : frame;
}

/** The value of the first header with this key. */
export function frameHeader(frame: Frame, key: string): string | undefined {
  return frame.headers.find(([name]) => name === key)?.[1];
}

interface Field {
  number: number;
  value: number | Buffer;
}

type NumberField = "seqId" | "logId" | "service" | "method";
type TextField = "payloadEncoding" | "payloadType" | "logIdNew";
const numberFields = new Map<number, NumberField>([
  [1, "seqId"],
  [2, "logId"],
  [3, "service"],
  [4, "method"],
]);
const textFields = new Map<number, TextField>([
  [6, "payloadEncoding"],
  [7, "payloadType"],
  [9, "logIdNew"],
]);

function assignField(frame: Frame, { number, value }: Field): boolean {
  const numeric = numberFields.get(number);
  if (numeric !== undefined) {
    if (typeof value !== "number") return false;
    frame[numeric] = value;
    return true;
  }
  if (typeof value === "number") return number > 9;
  const text = textFields.get(number);
  if (text !== undefined) frame[text] = value.toString("utf8");
  if (number === 8) frame.payload = value;
  return number === 5 ? assignHeader(frame, value) : true;
}

function assignHeader(frame: Frame, buffer: Buffer): boolean {
  const fields = decodeFields(buffer);
  const key = fields?.find((field) => field.number === 1)?.value;
  const value = fields?.find((field) => field.number === 2)?.value;
  if (!Buffer.isBuffer(key) || !Buffer.isBuffer(value)) return false;
  frame.headers.push([key.toString("utf8"), value.toString("utf8")]);
  return true;
}

function decodeFields(buffer: Buffer): Field[] | undefined {
  const fields: Field[] = [];
  let offset = 0;
  while (offset < buffer.length) {
    const tag = readVarint(buffer, offset);
    if (tag === undefined) return undefined;
    const number = tag.value >>> 3;
    const head = readVarint(buffer, tag.next);
    if (head === undefined) return undefined;
    if ((tag.value & 7) === varintField) {
      fields.push({ number, value: head.value });
      offset = head.next;
    } else if ((tag.value & 7) === bytesField && head.next + head.value <= buffer.length) {
      offset = head.next + head.value;
      fields.push({ number, value: buffer.subarray(head.next, offset) });
    } else return undefined;
  }
  return fields;
}

function readVarint(buffer: Buffer, start: number): { value: number; next: number } | undefined {
  let value = 0;
  let factor = 1;
  for (let offset = start; offset < Math.min(buffer.length, start + 10); offset += 1) {
    const byte = buffer[offset] ?? 0;
    value += (byte & 0x7f) * factor;
    if (byte < 0x80) return { value, next: offset + 1 };
    factor *= 128;
  }
  return undefined;
}

function encodeVarint(value: number): Buffer {
  const output: number[] = [];
  let rest = value;
  while (rest >= 128) {
    output.push((rest % 128) | 0x80);
    rest = Math.floor(rest / 128);
  }
  output.push(rest);
  return Buffer.from(output);
}

function varint(field: number, value: number): Buffer {
  return Buffer.concat([encodeVarint(field << 3), encodeVarint(value)]);
}

function bytes(field: number, value: Buffer): Buffer {
  return Buffer.concat([encodeVarint((field << 3) | bytesField), encodeVarint(value.length), value]);
}
