import { useDeployment } from "./console-deployment.ts";
import "./console-pages.suite.ts";
import "./console-pauses.suite.ts";
import "./console-versions.suite.ts";
import "./console-search.suite.ts";
import "./console-decisions.suite.ts";
import "./console-accessibility.suite.ts";
// Kills the worker that the suite before counts.
import "./console-why-no-answer.suite.ts";

useDeployment();
