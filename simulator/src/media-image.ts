/** Width and height in pixels as the header of a PNG, GIF or BMP tells them; undefined for others. */
export function imageSize(bytes: Uint8Array, mediaType: string): { width: number; height: number } | undefined {
  const head = Buffer.from(bytes.subarray(0, 32));
  if (head.length < 26) return undefined;
  if (mediaType === "image/png") return { width: head.readUInt32BE(16), height: head.readUInt32BE(20) };
  if (mediaType === "image/gif") return { width: head.readUInt16LE(6), height: head.readUInt16LE(8) };
  if (mediaType === "image/bmp") return { width: head.readInt32LE(18), height: Math.abs(head.readInt32LE(22)) };
  return undefined;
}
