import { crc32, deflateSync } from "node:zlib";

/** What is painted: `x` and `y` from the top left, in points. Parts outside of the picture are left out. */
export interface Rectangle {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** A picture of few colours. */
export interface Canvas {
  /** Paints with the colour at this place of the palette. */
  paint(area: Rectangle, color: number): void;
  /** Writes figures: digits, `-`, `+`, `.` and `e`; `x` is their middle, `y` their foot. */
  write(figures: string, at: { x: number; y: number; scale: number }, color: number): void;
  /** The picture as a PNG file. */
  png(): Buffer;
}

const signature = Buffer.from("\x89PNG\r\n\x1a\n", "latin1");

/** Three by five points each: lines from the top, bits from the left. */
const glyphs: Record<string, readonly number[]> = {
  "0": [7, 5, 5, 5, 7],
  "1": [2, 6, 2, 2, 7],
  "2": [7, 1, 7, 4, 7],
  "3": [7, 1, 7, 1, 7],
  "4": [5, 5, 7, 1, 1],
  "5": [7, 4, 7, 1, 7],
  "6": [7, 4, 7, 5, 7],
  "7": [7, 1, 2, 2, 2],
  "8": [7, 5, 7, 5, 7],
  "9": [7, 5, 7, 1, 7],
  "-": [0, 0, 7, 0, 0],
  "+": [0, 2, 7, 2, 0],
  ".": [0, 0, 0, 0, 2],
  e: [0, 7, 7, 4, 7],
};
const glyphWidth = 3;
const glyphHeight = 5;

/** Points that figures take in width. */
export function figuresWidth(figures: string, scale: number): number {
  return (figures.length * (glyphWidth + 1) - 1) * scale;
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  body.copy(framed, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}

/** Header of a PNG with one byte per point that names a colour of the palette (PNG specification, "IHDR"). */
function headerOf(width: number, height: number): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.writeUInt8(8, 8);
  header.writeUInt8(3, 9);
  return header;
}

function within(value: number, end: number): number {
  return Math.min(end, Math.max(0, Math.round(value)));
}

/** A picture of the palette's first colour; colours are `0xrrggbb`. */
export function createCanvas(width: number, height: number, palette: readonly number[]): Canvas {
  const lineBytes = width + 1; // each line begins with its filter: 0, none
  const lines = Buffer.alloc(lineBytes * height);

  const paint: Canvas["paint"] = (area, color) => {
    const left = within(area.x, width);
    const right = within(area.x + area.width, width);
    const bottom = within(area.y + area.height, height);
    for (let y = within(area.y, height); y < bottom; y += 1) {
      lines.fill(color, y * lineBytes + 1 + left, y * lineBytes + 1 + Math.max(left, right));
    }
  };

  return {
    paint,
    write: (figures, { x, y, scale }, color) => {
      const left = Math.round(x - figuresWidth(figures, scale) / 2);
      for (const [index, figure] of [...figures].entries()) {
        for (const [row, bits] of (glyphs[figure] ?? []).entries()) {
          for (let column = 0; column < glyphWidth; column += 1) {
            if ((bits & (4 >> column)) === 0) continue;
            const point = {
              x: left + (index * (glyphWidth + 1) + column) * scale,
              y: y - (glyphHeight - row) * scale,
              width: scale,
              height: scale,
            };
            paint(point, color);
          }
        }
      }
    },
    png: () => {
      const colors = Buffer.alloc(palette.length * 3);
      for (const [index, color] of palette.entries()) colors.writeUIntBE(color, index * 3, 3);
      return Buffer.concat([
        signature,
        chunk("IHDR", headerOf(width, height)),
        chunk("PLTE", colors),
        chunk("IDAT", deflateSync(lines)),
        chunk("IEND", Buffer.alloc(0)),
      ]);
    },
  };
}
