import { appManifest } from "@larkline/feishu";
import { describe, expect, it } from "vitest";
import { sourcesBelow } from "./document.ts";

const eventType =
  /"((?:im|application|card|auth|contact|drive|task|vc|minutes|mail|calendar)\.[a-z0-9_.]+(?:_v\d|\.trigger)|approval_(?:instance|task))"(?!: ignore)/g;

/** Events and callbacks that the code names and does not ignore. */
function handled(): string[] {
  const folders = ["apps/ingress/src", "packages/feishu/src", "packages/protocol/src"];
  const sources = folders.flatMap(sourcesBelow);
  const others = sources.filter((source) => !source.includes("export const appManifest"));
  expect(others.length).toBe(sources.length - 1);
  return others.flatMap((source) => [...source.matchAll(eventType)].map(([, name = ""]) => name));
}

describe("the app manifest", () => {
  it("subscribes to exactly the events and callbacks that the ingress acts upon", () => {
    const names = [...appManifest.events, ...appManifest.callbacks].map(({ name }) => name);
    expect([...new Set(handled())].sort()).toEqual(names.sort());
  });
});
