// Formats that Excel numbers without describing them (ECMA-376, part 1, 18.8.30), East Asian ones included.
function isBuiltInDate(id: number): boolean {
  return (id >= 14 && id <= 22) || (id >= 27 && id <= 36) || (id >= 45 && id <= 47) || (id >= 50 && id <= 58);
}

// Excel takes 255.
const maxFormatCharacters = 255;

/** Whether a number format shows a date or a time: letters of dates outside quotes and brackets. */
export function isDateFormat(id: number, code: string | undefined): boolean {
  if (code === undefined) return isBuiltInDate(id);
  const start = code.slice(0, maxFormatCharacters);
  return /[ymdhs]/i.test(start.replaceAll(/"[^"]*"|\[[^\]]*\]|\\.|_./g, "").replaceAll(/general/gi, ""));
}

const dayMs = 86_400_000;
// Day 0. The 1900 system counts a 29 February 1900 that never was, so it starts a day early.
const epochMs = { 1900: Date.UTC(1899, 11, 30), 1904: Date.UTC(1904, 0, 1) };
const maxSerial = 2_958_465; // 9999-12-31

/** A serial number as a date, `2026-03-01`, `2026-03-01 08:30:00` or a bare time; undefined when it is none. */
export function dateOfSerial(serial: number, system: keyof typeof epochMs): string | undefined {
  if (!(serial >= 0 && serial <= maxSerial)) return undefined;
  const text = new Date(epochMs[system] + Math.round(serial * 86_400) * 1_000).toISOString();
  const [day = "", time = ""] = text.slice(0, 19).split("T");
  if (serial < 1) return time;
  return Number.isInteger(Math.round(serial * 86_400) / (dayMs / 1_000)) ? day : `${day} ${time}`;
}
