import { parse } from "protobufjs";

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

const frameType = parse(`
  syntax = "proto2";
  message Header {
    required string key = 1;
    required string value = 2;
  }
  message Frame {
    required uint64 seqId = 1;
    required uint64 logId = 2;
    required int32 service = 3;
    required int32 method = 4;
    repeated Header headers = 5;
    optional string payloadEncoding = 6;
    optional string payloadType = 7;
    optional bytes payload = 8;
    optional string logIdNew = 9;
  }
`).root.lookupType("Frame");

/** A frame as protobufjs has it: absent fields are no properties. */
type WireFrame = Omit<Frame, "headers"> & { headers?: { key: string; value: string }[] };

/** Encodes a frame; the four required numbers are written even when they are 0. */
export function encodeFrame(frame: Frame): Buffer {
  const headers = frame.headers.map(([key, value]) => ({ key, value }));
  return Buffer.from(frameType.encode({ ...frame, headers }).finish());
}

/** Decodes a frame, or gives undefined when the bytes are not one. */
export function decodeFrame(buffer: Buffer): Frame | undefined {
  try {
    const { headers = [], ...fields } = frameType.toObject(frameType.decode(buffer), { longs: Number }) as WireFrame;
    return { ...fields, headers: headers.map(({ key, value }) => [key, value]) };
  } catch {
    return undefined;
  }
}

/** The value of the first header with this key. */
export function frameHeader(frame: Frame, key: string): string | undefined {
  return frame.headers.find(([name]) => name === key)?.[1];
}
