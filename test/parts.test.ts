import { globSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import parts from "./parts.json" with { type: "json" };

const root = fileURLToPath(new URL("..", import.meta.url));
const tests = globSync(
  ["{apps,packages,infra}/*/src/**/*.test.ts", "{simulator,test}/**/*.test.ts"],
  {
    cwd: root,
    exclude: (name) => name.includes("node_modules"),
  },
);
const { tests: cheap, ...others } = parts;
const named = Object.values(others).flatMap(({ files }) => files);

const testsBelow = (path: string): string[] => tests.filter((file) => file.startsWith(path));

it("each path of the table of parts is that of tests", () => {
  expect(named.filter((path) => testsBelow(path).length === 0)).toEqual([]);
  expect(Object.keys(cheap.dear).filter((file) => !tests.includes(file))).toEqual([]);
  expect(cheap.short.filter((file) => !named.includes(file))).toEqual([]);
});

it("no test belongs to two parts", () => {
  const placed = [...Object.keys(cheap.dear), ...named.flatMap(testsBelow)];
  expect(placed.filter((file, index) => placed.indexOf(file) !== index)).toEqual([]);
});
