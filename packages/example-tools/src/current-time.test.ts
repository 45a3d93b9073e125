import { describe, expect, it } from "vitest";
import { localTime } from "./current-time.ts";

const moment = new Date("2026-03-29T23:30:05.000Z");

describe("current_time", () => {
  it("gives local time, weekday and offset of a zone", () => {
    expect(localTime(moment, "Asia/Shanghai")).toEqual({
      time: "2026-03-30T07:30:05+08:00",
      weekday: "Monday",
      timeZone: "Asia/Shanghai",
      utc: "2026-03-29T23:30:05.000Z",
    });
    expect(localTime(moment, "UTC")).toMatchObject({
      time: "2026-03-29T23:30:05+00:00",
      weekday: "Sunday",
    });
    expect(localTime(moment, "America/St_Johns")).toMatchObject({
      time: "2026-03-29T21:00:05-02:30",
    });
  });

  it("writes midnight as 00", () => {
    expect(localTime(new Date("2026-01-01T00:00:00Z"), "UTC")["time"]).toBe(
      "2026-01-01T00:00:00+00:00",
    );
  });

  it("refuses an unknown zone with advice", () => {
    expect(() => localTime(moment, "Mars/Olympus")).toThrow(
      /unknown time zone "Mars\/Olympus".*IANA/,
    );
  });
});
