// `npm run k8s-alerts`: writes monitoring/alerts.yaml.
import { readFile, writeFile } from "node:fs/promises";
import { alertRuleOf } from "./alert-rule.ts";

const rules = await readFile(new URL("../../prometheus/alerts.yaml", import.meta.url), "utf8");
await writeFile(new URL("../monitoring/alerts.yaml", import.meta.url), alertRuleOf(rules));
