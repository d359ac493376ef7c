/** What a Node process costs that does nothing. */
import { peakBytes, printFigures } from "./job.js";

printFigures({ seconds: 0, bytes: 0, peakBytes: peakBytes() });
